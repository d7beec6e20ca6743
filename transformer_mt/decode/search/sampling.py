"""Translations drawn at random, for back-translation and the like."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

import torch
from torch import Tensor

from transformer_mt.decode.search.beam_search import StepFunction, remaining
from transformer_mt.decode.search.beam_state import best
from transformer_mt.decode.search.hypothesis import Hypothesis, length_penalty

_FEW = 512
"""Tokens that mostly hold ``top_p`` of the probability; only else are all of them sorted."""


@dataclass
class _Draft:
    """A translation as far as it is drawn."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """Of each token, and the end symbol's behind them."""

    @property
    def is_finished(self) -> bool:
        return len(self.log_probs) > len(self.tokens)

    def add(self, token: int, log_prob: float, eos: int) -> None:
        """What is drawn after the end counts for nothing."""
        if self.is_finished:
            return
        self.log_probs.append(log_prob)
        if token != eos:
            self.tokens.append(token)

    def hypothesis(self, alpha: float) -> Hypothesis:
        log_prob = sum(self.log_probs)
        score = log_prob / length_penalty(len(self.log_probs), alpha)
        return Hypothesis(self.tokens, log_prob, score, self.log_probs)


def sample(
    model: StepFunction,
    max_lengths: Sequence[int],
    draws: Sequence[Sequence[Random]],
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    alpha: float,
    bos: int,
    eos: int,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Translations of B sentences, N of each, every token drawn from the model's distribution.

    Args:
        model: Log-probabilities of the next token.
        max_lengths: For each sentence, the most tokens of a translation, end symbol not counted.
        draws: [B][N], for each translation where its chance comes from, and so all that it
            depends on besides the model: one number is taken for each token.
        temperature: See ``draw``.
        top_k: See ``draw``.
        top_p: See ``draw``.
        alpha: Exponent of the length penalty in the scores.
        bos: Id of the start symbol.
        eos: Id of the end symbol.
        device: Where the model takes its tokens.

    Returns:
        For each sentence its N translations, in the order of ``draws``. Their log-probabilities
        are the model's, whatever temperature, ``top_k`` and ``top_p`` made of them.
    """
    drafts = [[_Draft() for _ in own] for own in draws]
    active = list(range(len(max_lengths)))
    tokens = torch.full((len(active), 1), bos, device=device)  # all begin alike
    for t in count():
        if not active:
            break
        model.reserve(1)
        log_probs = only_end(model.step(tokens), [max_lengths[i] == t for i in active], eos)
        numbers = torch.tensor(
            [[each.random() for each in draws[i]] for i in active], dtype=torch.float64
        ).to(log_probs.device)
        distribution = log_probs.expand(*numbers.shape, -1)
        tokens, values = draw(distribution, numbers, temperature, top_k, top_p)
        for i, row, own in zip(active, tokens.tolist(), values.tolist(), strict=True):
            for draft, token, value in zip(drafts[i], row, own, strict=True):
                draft.add(token, value, eos)
        if t == 0:
            model.select(torch.zeros_like(tokens))
        rows = remaining([not all(draft.is_finished for draft in drafts[i]) for i in active])
        if rows and len(rows) < len(active):
            model.keep(rows)
        active, tokens = [active[row] for row in rows], tokens[rows]
    return [[draft.hypothesis(alpha) for draft in own] for own in drafts]


def only_end(log_probs: Tensor, full: Sequence[bool], eos: int) -> Tensor:
    """Lets the sentences that are ``full`` do nothing but end, in place."""
    if any(full):
        rows = torch.tensor([row for row, is_full in enumerate(full) if is_full])
        rows = rows.to(log_probs.device)
        ends = log_probs[rows, :, eos]
        log_probs[rows] = -torch.inf
        log_probs[rows, :, eos] = ends
    return log_probs


def draw(
    log_probs: Tensor, numbers: Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[Tensor, Tensor]:
    """Tokens by their probabilities, the inverse of the distribution at numbers from [0, 1).

    Probabilities are taken to the power 1 / ``temperature``; of these remain the ``top_k`` largest
    (0: all), and of these the fewest that hold ``top_p`` of what they sum to.

    Args:
        log_probs: [..., V].
        numbers: [...], evenly distributed.
        temperature: Above 0; 1 leaves the probabilities as they are.
        top_k: At least 0.
        top_p: Above 0, at most 1.

    Returns:
        [...] tokens, and [...] their log-probabilities in ``log_probs``.
    """
    index = None
    kept = log_probs
    if top_k:
        kept, index = best(log_probs, top_k)
    probs = (kept.double() / temperature).softmax(-1)
    if top_p < 1:
        values, order = probs.topk(min(_FEW, probs.shape[-1]))
        if bool((values.sum(-1) < top_p).any()):
            values, order = probs.sort(-1, descending=True)
        probs = values.masked_fill(values.cumsum(-1) - values >= top_p, 0)
        index = order if index is None else index.gather(-1, order)
    reached = probs.cumsum(-1)
    wanted = numbers.double()[..., None] * reached[..., -1:]
    # The first that exceeds the number wanted: never one of probability 0.
    place = torch.searchsorted(reached, wanted, right=True)
    words = place if index is None else index.gather(-1, place)
    return words.squeeze(-1), log_probs.gather(-1, words).squeeze(-1)
