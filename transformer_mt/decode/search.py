"""Beam search over a step function (§6.1); it knows no model and no text.

Shapes: B sentences, W beams, V vocabulary, t tokens so far.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.errors import InputError


class StepFunction(Protocol):
    """What a search asks of a model."""

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each beam, [B, W] int64 → log-probabilities, [B, W, V] float32.

        They are the caller's, who may overwrite them. W is 1 in the first step.
        """

    def select(self, sentences: Tensor | None, beams: Tensor) -> None:
        """Goes on with the sentences [B'] (None: all) and, in each, from the beams [B', W].

        Most stay where they are, which costs nothing.
        """


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: list[int]
    """Token ids, without start and end symbols."""
    log_prob: float
    """Sum of the log-probabilities of the tokens and of the end symbol."""
    score: float
    """``log_prob`` over the length penalty: what hypotheses are ranked by."""
    token_log_probs: list[float] = field(default_factory=list)
    """The terms of ``log_prob``, the end symbol's last; empty where the engine gives none."""


@dataclass(frozen=True, slots=True, eq=False)
class Beam:
    """A translation begun: its newest token, and the beam that it goes on from."""

    token: int
    token_log_prob: float
    log_prob: float
    """Of all its tokens."""
    slot: int
    """Where the beam that it goes on from sat among the W beams of its sentence."""
    before: "Beam | None"

    def finish(self, alpha: float) -> Hypothesis:
        """The translation, if the newest token is the end symbol."""
        tokens, log_probs, beam = [], [], self
        while beam.before is not None:
            tokens.append(beam.token)
            log_probs.append(beam.token_log_prob)
            beam = beam.before
        score = self.log_prob / length_penalty(len(tokens), alpha)
        return Hypothesis(tokens[:0:-1], self.log_prob, score, log_probs[::-1])


@dataclass
class _Sentence:
    """The search for the translations of one sentence."""

    limit: int
    """Most tokens of a translation, end symbol not counted."""
    beams: list[Beam]
    """As the model has them, in no order."""
    finished: list[Hypothesis] = field(default_factory=list)


def length_penalty(length: int, alpha: float) -> float:
    """GNMT's lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14); |Y| counts the end symbol."""
    return ((5 + length) / 6) ** alpha


def beam_search(
    model: StepFunction,
    max_lengths: Sequence[int],
    *,
    beam_size: int,
    alpha: float,
    bos: int,
    eos: int,
    nbest: int = 1,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of B sentences.

    In each step the 2W best continuations are looked at. Those of the best W that end are
    finished hypotheses; the best W that do not end live on. A sentence leaves the batch once it
    has W finished hypotheses, or once no living beam can still get among its ``nbest`` best: a
    log-probability only falls, so a beam's score is bounded by its log-probability over the
    penalty of the longest length. With ``beam_size`` 1 this is greedy search.

    Args:
        model: Log-probabilities of the next token; −inf for tokens it rules out.
        max_lengths: For each sentence, the most tokens of a translation, end symbol not counted.
        beam_size: W.
        alpha: Exponent of the length penalty.
        bos: Id of the start symbol.
        eos: Id of the end symbol.
        nbest: How many translations to return for each sentence, at most W.
        device: Where the model takes its tokens.

    Returns:
        For each sentence, up to ``nbest`` hypotheses, best first, and at least one.
    """
    if not 1 <= nbest <= beam_size:
        raise ValueError(f"nbest={nbest} must be between 1 and beam_size={beam_size}")
    sentences = [_Sentence(limit, [Beam(bos, 0.0, 0.0, 0, None)]) for limit in max_lengths]
    active = list(sentences)  # [B], as the model has them
    for t in count():
        if not active:
            break
        tokens = torch.tensor([[beam.token for beam in s.beams] for s in active], device=device)
        log_probs = only_end(model.step(tokens), [s.limit == t for s in active], eos)
        totals = torch.tensor([[beam.log_prob for beam in s.beams] for s in active], device=device)
        found = _best_continuations(log_probs, totals, 2 * beam_size)
        for sentence, continuations in zip(active, found, strict=True):
            _advance(sentence, continuations, beam_size, alpha, eos)
        going = [not _is_done(s, beam_size, nbest, alpha) for s in active]
        rows = remaining(going)
        active = [active[row] for row in rows]
        slots = torch.tensor([[beam.slot for beam in s.beams] for s in active], device=device)
        if active:
            model.select(None if all(going) else torch.tensor(rows, device=device), slots)
    return [sorted(s.finished, key=lambda h: -h.score)[:nbest] for s in sentences]


def only_end(log_probs: Tensor, full: Sequence[bool], eos: int) -> Tensor:
    """Lets the sentences that are ``full`` do nothing but end, in place.

    A translation of the longest length is scored with its end symbol; the authors' code leaves it
    without one.
    """
    if any(full):
        rows = torch.tensor([row for row, is_full in enumerate(full) if is_full])
        rows = rows.to(log_probs.device)
        ends = log_probs[rows, :, eos]
        log_probs[rows] = -torch.inf
        log_probs[rows, :, eos] = ends
    return log_probs


def remaining(going: Sequence[bool]) -> list[int]:
    """The rows that go on, moved as little as can be: the last of them fill the gaps."""
    number = sum(going)
    fillers = (row for row in range(number, len(going)) if going[row])
    return [row if going[row] else next(fillers) for row in range(number)]


Continuation = tuple[float, float, int, int]
"""Log-probability of all tokens and of the newest, the beam that it goes on from, the token."""


def _best_continuations(log_probs: Tensor, totals: Tensor, k: int) -> list[list[Continuation]]:
    """For each sentence the ``k`` best, best first, or all if there are less.

    Args:
        log_probs: [B, W, V] of the next token.
        totals: [B, W] of all tokens before.
        k: At least 1.
    """
    values, words = best(log_probs, k)  # of each beam
    beams = torch.arange(totals.shape[1], device=totals.device)[:, None].expand_as(values[0])
    candidates = (totals[:, :, None] + values).flatten(1)
    top, index = candidates.topk(min(k, candidates.shape[1]))
    # In one tensor, so that a GPU is waited for once; float64 holds all of it exactly.
    parts = [values.flatten(1), beams.expand_as(values).flatten(1), words.flatten(1)]
    table = torch.stack([top.double(), *(part.gather(1, index).double() for part in parts)], 2)
    return [
        [(total, value, int(beam), int(word)) for total, value, beam, word in row]
        for row in table.tolist()
    ]


def best(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``values.topk(k)`` over many values: [..., V] → [..., k] twice, or all if there are less.

    The best of V are among the columns, of V written as a matrix, that have the k best maxima; a
    maximum over rows is quickly found.
    """
    size = values.shape[-1]
    height = int((size / k) ** 0.5)
    width = size // max(height, 1)
    if height < 4 or width < k or values.device.type != "cpu":
        return values.topk(min(k, size))
    matrix = values[..., : height * width].unflatten(-1, (height, width))
    columns = matrix.amax(-2).topk(k).indices  # [..., k]
    places = torch.arange(height)[:, None] * width + columns[..., None, :]  # [..., height, k]
    rest = torch.arange(height * width, size).expand(*values.shape[:-1], -1)
    places = torch.cat((places.flatten(-2), rest), -1)
    top, index = values.gather(-1, places).topk(k)
    return top, places.gather(-1, index)


def _advance(
    sentence: _Sentence,
    continuations: list[Continuation],
    beam_size: int,
    alpha: float,
    eos: int,
) -> None:
    if math.isnan(continuations[0][0]):
        raise InputError("the model's output is not a number: its weights are damaged")
    alive = []
    for rank, (total, log_prob, slot, word) in enumerate(continuations):
        if total == -torch.inf:
            break
        beam = Beam(word, log_prob, total, slot, sentence.beams[slot])
        if word != eos:
            alive.append(beam)
        elif rank < beam_size:
            sentence.finished.append(beam.finish(alpha))
    sentence.beams = _seated(alive[:beam_size], beam_size)


def _seated(alive: list[Beam], beam_size: int) -> list[Beam]:
    """The beams, each where the one before it sat if that seat is free; empty seats get dead ones.

    So the model's caches mostly stay where they are.
    """
    seats: list[Beam | None] = [None] * beam_size
    standing = []
    for beam in alive:
        if seats[beam.slot] is None:
            seats[beam.slot] = beam
        else:
            standing.append(beam)
    rest, dead = iter(standing), Beam(0, -torch.inf, -torch.inf, 0, None)
    return [seat or next(rest, dead) for seat in seats]


def _is_done(sentence: _Sentence, beam_size: int, nbest: int, alpha: float) -> bool:
    """Whether a sentence's ``nbest`` best are certain."""
    log_prob = max(beam.log_prob for beam in sentence.beams)
    if log_prob == -torch.inf or len(sentence.finished) >= beam_size:
        return True
    if len(sentence.finished) < nbest:
        return False
    bound = log_prob / length_penalty(sentence.limit + 1, alpha)
    return sorted((h.score for h in sentence.finished), reverse=True)[nbest - 1] >= bound
