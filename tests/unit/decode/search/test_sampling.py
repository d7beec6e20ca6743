"""Sampling against the distribution given by the formula."""

import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.search_tables import BOS, EOS, Table, TableModel, path

from transformer_mt.config import DecodeConfig
from transformer_mt.decode.engine import Hypothesis, length_penalty
from transformer_mt.decode.search.sampling import sample, sample_tokens


def distribution(log_probs: list[float], temperature: float, top_k: int) -> dict[int, float]:
    """What remains of a distribution, token by token."""
    weights = {i: math.exp(value / temperature) for i, value in enumerate(log_probs)}
    order = sorted(weights, key=lambda i: -weights[i])[: top_k or None]
    total = sum(weights[i] for i in order)
    return {i: weights[i] / total for i in order if weights[i] > 0}


@pytest.mark.parametrize("size", [5, 520])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
@pytest.mark.parametrize("top_k", [0, 3])
def test_tokens_are_sampled_by_their_probability(size: int, temperature: float, top_k: int) -> None:
    torch.manual_seed(size)
    log_probs = (torch.randn(size) * 2).log_softmax(0)
    log_probs[1] = -torch.inf
    number = 20_000
    numbers = (torch.arange(number) + 0.5) / number
    words, values = sample_tokens(log_probs.expand(number, -1), numbers, temperature, top_k)
    assert torch.equal(values, log_probs[words])
    expected = distribution(log_probs.tolist(), temperature, top_k)
    counts = torch.bincount(words, minlength=size)
    for word in range(size):
        # An interval of length p holds p · number of the numbers, up to one at each end.
        assert abs(int(counts[word]) - expected.get(word, 0) * number) <= 2.5
    assert counts[1] == 0


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_tokens_at_the_ends_of_the_interval_have_probability(number: float) -> None:
    log_probs = torch.tensor([-torch.inf, math.log(0.5), math.log(0.5), -torch.inf])
    word, _ = sample_tokens(log_probs, torch.tensor(number, dtype=torch.float64), 1.0, 0)
    assert word.item() == (1 if number == 0 else 2)


def sampled(
    table: Table, sentences: list[int], limits: list[int], n: int
) -> list[list[Hypothesis]]:
    return sample(
        TableModel(table, sentences),
        limits,
        [[Random(f"{sentence} {i}") for i in range(n)] for sentence in sentences],
        DecodeConfig(sampling=True, temperature=1.5), bos=BOS, eos=EOS,
    )  # fmt: skip


@given(st.integers(0, 999), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 3))
def test_samples_do_not_depend_on_the_batch(seed: int, limits: list[int], n: int) -> None:
    table = Table(seed, 5, 1.0, 0.2)
    together = sampled(table, list(range(len(limits))), limits, n)
    for sentence, limit in enumerate(limits):
        (alone,) = sampled(table, [sentence], [limit], n)
        assert together[sentence] == alone
        assert len(alone) == n
        for h in alone:
            assert h.token_log_probs == path(table.of(sentence), h.tokens)
            assert h.log_prob == pytest.approx(sum(h.token_log_probs))
            assert h.score == pytest.approx(h.log_prob / length_penalty(len(h.tokens) + 1, 0.6))
            assert len(h.tokens) <= limit
            assert EOS not in h.tokens
