"""Attention over packed sequences, by each kernel, against each sequence alone in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from transformer_mt.batch import Boundaries, Buckets, CuSeqlens
from transformer_mt.kernels import packed_attention as module
from transformer_mt.kernels.packed_attention import packed_attention

H, K, V = 2, 3, 5
QUERIES, KEYS = [3, 4, 1, 2], [2, 5, 4, 1]
"""Lengths of four sequences; the first two are one bucket."""


def one_sequence(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Equation (1) for each head."""
    q, k, v = (x.unflatten(1, (H, -1)).transpose(0, 1) for x in (query, key, value))
    scores = q @ k.mT / math.sqrt(K)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["written out", "fused", "variable length"])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("dropout", [0.0, 1e-9])  # the code with dropout, which drops nothing
def test_outputs_and_gradients_equal_those_of_single_sequences(
    kernel: str, causal: bool, padding: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "fused":
        monkeypatch.setattr(module, "_EAGER_LENGTH", 0)
    key_lengths = QUERIES if causal else KEYS
    value_size = K if kernel == "variable length" else V  # the GPU's kernel needs equal sizes
    torch.manual_seed(1)
    tokens = sum(QUERIES), sum(key_lengths)
    inputs = [
        torch.randn(n + padding, H * size, dtype=torch.float64, requires_grad=True)
        for n, size in ((tokens[0], K), (tokens[1], K), (tokens[1], value_size))
    ]
    sides: list[Boundaries] = []
    for lengths in (QUERIES, key_lengths):
        if kernel == "variable length":
            ends = np.cumsum([0, *lengths, padding][: None if padding else -1])
            sides.append(CuSeqlens(torch.from_numpy(ends.astype(np.int32)), 8))
        else:
            longest = [max(lengths[:2]), max(lengths[2:])]
            shapes = [(3, 6), (3, 7)] if padding else [(2, n) for n in longest]
            rows = sum(lengths) + padding
            sides.append(Buckets.from_lengths(np.array(lengths), [2, 2], shapes, rows))
    weights = torch.randn(tokens[0], H * value_size, dtype=torch.float64)
    (query, key, value), (queries, keys) = inputs, sides
    got = packed_attention(query, key, value, queries, keys, H, causal, dropout)[: tokens[0]]
    split = [
        x[:n].split(lengths)
        for x, n, lengths in zip(
            inputs, (tokens[0], *tokens[1:] * 2), (QUERIES, key_lengths, key_lengths), strict=True
        )
    ]
    expected = torch.cat([one_sequence(q, k, v, causal) for q, k, v in zip(*split, strict=True)])
    torch.testing.assert_close(got, expected)
    gradients = [torch.autograd.grad((y * weights).sum(), inputs) for y in (got, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_second_derivatives_are_refused() -> None:
    one = Buckets.from_lengths(np.array([2]), [1], [(1, 2)], 2)
    x = torch.randn(2, H * K, requires_grad=True)
    squares = packed_attention(x, x, x, one, one, H).square().sum()
    (gradient,) = torch.autograd.grad(squares, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("kernel", ["written out", "fused", "variable length"])
def test_dropout_keeps_the_mean_and_depends_on_the_seed(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "fused":
        monkeypatch.setattr(module, "_EAGER_LENGTH", 0)
    length, number, p = 32, 50, 0.3
    side: Boundaries = Buckets.from_lengths(
        np.full(number, length), [number], [(number, length)], number * length
    )
    if kernel == "variable length":
        ends = torch.arange(number + 1, dtype=torch.int32) * length
        side = CuSeqlens(ends, length)
    query = torch.zeros(number * length, H * K)  # all weights are 1 / length

    def outputs(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return packed_attention(query, query, query + 1, side, side, H, dropout=p)

    found = outputs(1)
    assert torch.equal(outputs(1), found)
    assert not torch.equal(outputs(2), found)
    torch.testing.assert_close(found.mean(), torch.tensor(1.0), rtol=0, atol=0.01)
    deviation = math.sqrt(p / (1 - p) / length)
    torch.testing.assert_close(found.std(), torch.tensor(deviation), rtol=0.05, atol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_gpu_kernel_is_traceable(dropout: float) -> None:
    shape = (100, 8, 64)
    with FakeTensorMode(), torch.no_grad():
        side = CuSeqlens(torch.empty(9, dtype=torch.int32, device="cuda"), 64)
        query, key, value = torch.empty(3, *shape, dtype=torch.bfloat16, device="cuda")
        out = module.varlen_attention(query, key, value, side, side, True, dropout)
        assert (out.shape, out.dtype) == (shape, torch.bfloat16)
