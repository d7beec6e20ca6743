"""Beam search over a step function (§6.1); it knows no model and no text.

Shapes: B sentences, W beams, V vocabulary, t tokens so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class StepFunction(Protocol):
    """What a search asks of a model."""

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each beam, [B, W] int64 → log-probabilities, [B, W, V] float32."""

    def select(self, sentences: Tensor | None, beams: Tensor) -> None:
        """Goes on with the sentences [B'] (None: all) and, in each, from the beams [B', W]."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: list[int]
    """Token ids, without start and end symbols."""
    log_prob: float
    """Sum of the log-probabilities of the tokens and of the end symbol."""
    score: float
    """``log_prob`` over the length penalty: what hypotheses are ranked by."""


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
    limits = list(max_lengths)  # [B]
    active = list(range(len(max_lengths)))  # [B] which sentence each row is
    finished: list[list[Hypothesis]] = [[] for _ in active]
    tokens = torch.full((len(active), beam_size), bos, device=device)  # [B, W] newest tokens
    history = tokens.new_empty(len(active), beam_size, 0)  # [B, W, t]
    # All beams begin alike: only the first may continue.
    scores = torch.full(tokens.shape, -torch.inf, device=device)  # [B, W] log-probabilities
    scores[:, 0] = 0

    for t in range(max(max_lengths, default=-1) + 1):
        log_probs = model.step(tokens)
        vocab_size = log_probs.shape[-1]
        # At its longest length a translation can only end, and is scored with its end symbol;
        # the authors' code leaves it without one.
        if any(limit == t for limit in limits):
            full = torch.tensor([limit == t for limit in limits], device=device)
            ends = log_probs[..., eos].clone()
            log_probs = log_probs.masked_fill(full[:, None, None], -torch.inf)
            log_probs[..., eos] = ends
        continued = (scores[:, :, None] + log_probs).flatten(1)  # [B, W·V]
        count = min(2 * beam_size, continued.shape[1])
        top, index = continued.topk(count)  # [B, 2W], best first
        parents, words = index // vocab_size, index % vocab_size

        ended = (words == eos) & (top > -torch.inf)
        ended[:, beam_size:] = False
        penalty = length_penalty(t + 1, alpha)
        for row, rank in ended.nonzero().tolist():
            log_prob = top[row, rank].item()
            hypothesis = Hypothesis(
                history[row, parents[row, rank]].tolist(), log_prob, log_prob / penalty
            )
            finished[active[row]].append(hypothesis)

        # The best W that go on, in order: an ended candidate sorts behind all of them.
        alive = top.masked_fill(words == eos, -torch.inf)
        scores, order = alive.topk(min(beam_size, count))
        parents, tokens = parents.gather(1, order), words.gather(1, order)
        best = scores[:, 0].tolist()
        rows = [
            row
            for row, sentence in enumerate(active)
            if not _is_done(
                finished[sentence],
                best[row] / length_penalty(limits[row] + 1, alpha),
                beam_size,
                nbest,
            )
        ]
        if not rows:
            break
        kept = None
        if len(rows) < len(active):
            kept = torch.tensor(rows, device=device)
            active, limits = [active[row] for row in rows], [limits[row] for row in rows]
            parents, tokens, scores = parents[kept], tokens[kept], scores[kept]
            history = history[kept]
        model.select(kept, parents)
        width = history.shape[-1]
        history = history.gather(1, parents[:, :, None].expand(-1, -1, width))
        history = torch.cat((history, tokens[:, :, None]), dim=2)

    return [sorted(hyps, key=lambda h: -h.score)[:nbest] for hyps in finished]


def _is_done(finished: list[Hypothesis], bound: float, beam_size: int, nbest: int) -> bool:
    """Whether a sentence's ``nbest`` best are certain, given the best score a beam can reach."""
    if bound == -torch.inf or len(finished) >= beam_size:
        return True
    if len(finished) < nbest:
        return False
    return sorted((h.score for h in finished), reverse=True)[nbest - 1] >= bound
