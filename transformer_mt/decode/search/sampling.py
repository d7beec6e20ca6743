"""Random sampling of translations (temperature, top-k), for example for back-translation."""

from collections.abc import Sequence
from itertools import count
from random import Random

import torch
from torch import Tensor

from transformer_mt.config import DecodeConfig
from transformer_mt.decode.engine import Hypothesis, length_penalty
from transformer_mt.decode.search.beam_search import StepFunction, force, remaining_rows


def sample(
    model: StepFunction,
    max_lengths: Sequence[int],
    generators: Sequence[Sequence[Random]],
    config: DecodeConfig,
    *,
    bos: int,
    eos: int,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Samples N translations of each of B sentences, token by token.

    Each translation has a random generator, [B][N], which yields one number for each token; so a
    sample depends on nothing but the model and its generator. ``config`` gives ``temperature``,
    ``top_k`` and ``length_penalty``; for the other arguments see ``beam_search``.

    Returns:
        For each sentence its N translations, in the order of ``generators``. Log-probabilities are
        the model's, before temperature and ``top_k``.
    """
    # [B][N] lists of tokens and their log-probabilities; finished ones end with the end symbol.
    samples: list[list[list[tuple[int, float]]]] = [[[] for _ in row] for row in generators]

    def is_finished(drawn: list[tuple[int, float]]) -> bool:
        return bool(drawn) and drawn[-1][0] == eos

    def hypothesis(drawn: list[tuple[int, float]]) -> Hypothesis:
        log_probs = [log_prob for _, log_prob in drawn]
        score = sum(log_probs) / length_penalty(len(log_probs), config.length_penalty)
        return Hypothesis([token for token, _ in drawn[:-1]], sum(log_probs), score, log_probs)

    active = list(range(len(max_lengths)))
    tokens = torch.full((len(active), 1), bos, device=device)  # one beam: all start the same
    parents = torch.zeros_like(tokens)
    for t in count():
        if not active:
            break
        log_probs = model.step(tokens, parents)
        force(log_probs, active, t, max_lengths=max_lengths, eos=eos, prefixes=prefixes)
        uniform = torch.tensor(
            [[generator.random() for generator in generators[i]] for i in active],
            dtype=torch.float64,
        ).to(log_probs.device)
        log_probs = log_probs.expand(*uniform.shape, -1)
        tokens, values = sample_tokens(log_probs, uniform, config.temperature, config.top_k)
        for i, ids, terms in zip(active, tokens.tolist(), values.tolist(), strict=True):
            for drawn, token, log_prob in zip(samples[i], ids, terms, strict=True):
                if not is_finished(drawn):
                    drawn.append((token, log_prob))
        # Each sample continues its own beam; the first step has a single beam.
        own = torch.arange(tokens.shape[1], device=device)
        parents = own.expand_as(tokens) if t else torch.zeros_like(tokens)
        rows = remaining_rows([all(map(is_finished, samples[i])) for i in active])
        if rows and len(rows) < len(active):
            model.keep(rows)
        active, tokens, parents = [active[row] for row in rows], tokens[rows], parents[rows]
    return [[hypothesis(drawn) for drawn in row] for row in samples]


def sample_tokens(
    log_probs: Tensor, uniform: Tensor, temperature: float, top_k: int
) -> tuple[Tensor, Tensor]:
    """Samples tokens by inverting their cumulative distribution.

    Probabilities are raised to the power 1 / ``temperature``; then only the ``top_k`` largest are
    kept (0: all).

    Shapes: ``log_probs`` [..., V]; ``uniform`` [...], random numbers in [0, 1).

    Returns:
        [...] tokens, and [...] their log-probabilities in ``log_probs``.
    """
    index = None
    kept = log_probs
    if top_k:
        kept, index = log_probs.topk(min(top_k, log_probs.shape[-1]))
    probs = (kept.double() / temperature).softmax(-1)
    cumulative = probs.cumsum(-1)
    threshold = uniform.double()[..., None] * cumulative[..., -1:]
    # The first that exceeds the threshold: never a token of probability 0.
    position = torch.searchsorted(cumulative, threshold, right=True)
    tokens = position if index is None else index.gather(-1, position)
    return tokens.squeeze(-1), log_probs.gather(-1, tokens).squeeze(-1)
