"""Attention over packed sequences, by each kernel, against each sequence alone in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer_mt.batch import Boundaries, Buckets, CuSeqlens
from transformer_mt.kernels import packed_attention as module
from transformer_mt.kernels.packed_attention import packed_attention

H, K, V = 2, 3, 5
QUERIES, KEYS = [3, 4, 1, 2], [2, 5, 4, 1]
"""Lengths of four sequences; the first two are one bucket."""


def one_sequence(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """Equation (1) for each head, one query at a time."""
    rows = []
    for t in range(len(query)):
        heads = []
        for h in range(H):
            seen = slice(0, t + 1) if causal else slice(None)
            q, k = query[t, h * K : (h + 1) * K], key[seen, h * K : (h + 1) * K]
            scores = torch.stack([q.dot(row) for row in k]) / math.sqrt(K)
            weights = scores.exp() / scores.exp().sum()
            values = value[seen].unflatten(1, (H, -1))[:, h]
            heads.append(sum(w * v for w, v in zip(weights, values, strict=True)))
        rows.append(torch.cat([torch.as_tensor(head) for head in heads]))
    return torch.stack(rows)


def buckets(lengths: list[int], shapes: list[tuple[int, int]] | None, rows: int) -> Buckets:
    return Buckets.from_lengths(np.array(lengths), [2, 2], shapes, rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["written out", "fused", "variable length"])
@pytest.mark.parametrize("padding", [0, 3])
def test_outputs_and_gradients_equal_those_of_single_sequences(
    kernel: str, causal: bool, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "fused":
        monkeypatch.setattr(module, "_WRITTEN_OUT_LENGTH", 0)
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
            shapes = [(3, 6), (3, 7)] if padding else None
            sides.append(buckets(lengths, shapes, sum(lengths) + padding))
    weights = torch.randn(tokens[0], H * value_size, dtype=torch.float64)
    (query, key, value), (queries, keys) = inputs, sides
    got = packed_attention(query, key, value, queries, keys, H, causal)[: tokens[0]]
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
