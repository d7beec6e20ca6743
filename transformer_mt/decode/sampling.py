"""Translations drawn at random, for back-translation and the like."""

from collections.abc import Sequence
from itertools import count
from random import Random

import torch
from torch import Tensor

from transformer_mt.decode.search import Beam, Hypothesis, StepFunction, best, only_end, remaining

_FEW = 512
"""Tokens that mostly hold ``top_p`` of the probability; only else are all of them sorted."""


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
    active = list(range(len(max_lengths)))
    beams = [[Beam(bos, 0.0, 0.0, 0, None)] * len(own) for own in draws]
    finished: list[dict[int, Hypothesis]] = [{} for _ in active]
    for t in count():
        if not active:
            break
        width = 1 if t == 0 else len(draws[0])  # all begin alike
        tokens = torch.tensor([[b.token for b in beams[i][:width]] for i in active], device=device)
        log_probs = only_end(model.step(tokens), [max_lengths[i] == t for i in active], eos)
        numbers = torch.tensor(
            [[each.random() for each in draws[i]] for i in active], dtype=torch.float64
        ).to(log_probs.device)
        distribution = log_probs.expand(*numbers.shape, -1)
        words, values = draw(distribution, numbers, temperature, top_k, top_p)
        for i, row, own in zip(active, words.tolist(), values.tolist(), strict=True):
            for n, (word, value) in enumerate(zip(row, own, strict=True)):
                before = beams[i][n]
                beam = Beam(word, value, before.log_prob + value, min(n, width - 1), before)
                beams[i][n] = beam
                if word == eos and n not in finished[i]:
                    finished[i][n] = beam.finish(alpha)
        going = [len(finished[i]) < len(draws[i]) for i in active]
        rows = remaining(going)
        active = [active[row] for row in rows]
        slots = torch.tensor([[beam.slot for beam in beams[i]] for i in active], device=device)
        if active:
            model.select(None if all(going) else torch.tensor(rows, device=device), slots)
    return [[own[n] for n in sorted(own)] for own in finished]


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
