"""Attention of training on a CPU, written out as batched matrix products and a softmax.

PyTorch's fused kernel is made for long sequences. For sentences the three steps of equation (1)
are often faster, in bf16 several times.

Shapes: N, M packed rows of queries and keys; B sequences, T and S lengths of queries and keys, of
one bucket; H heads; K, K' sizes of a head's keys and values; P, P' padded rows of all buckets.
"""

import math
from typing import Any

import torch
from torch import Tensor

from transformer_mt.batch import Bucket, Buckets
from transformer_mt.model.padding import GatherRows, HeadRows, ScatterRows

MAX_LENGTH = 512
"""Maximum length of a sequence: its H · S² weights are stored, which a fused kernel never does."""


def written_out_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_layout: Buckets,
    key_layout: Buckets,
    num_heads: int,
    causal: bool,
) -> Tensor:
    """Multi-head attention with the arguments and the result of ``multi_head_attention``."""
    query_rows, key_rows = (HeadRows.of(x, num_heads) for x in (query_layout, key_layout))

    def heads(x: Tensor, rows: HeadRows) -> Tensor:
        """[N, H·K] → [H·P, K]."""
        gathered: Tensor = GatherRows.apply(
            x.reshape(-1, x.shape[1] // num_heads), rows.gather, rows.scatter
        )
        return gathered

    output = _Attention.apply(
        heads(query, query_rows),
        heads(key, key_rows),
        heads(value, key_rows),
        query_layout.buckets,
        key_layout.buckets,
        num_heads,
        causal,
    )
    packed: Tensor = ScatterRows.apply(output, query_rows.scatter)
    return packed.view(len(query), -1)


class _Attention(torch.autograd.Function):
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, equation (1), of each head and bucket.

    [H·P, K], [H·P', K] and [H·P', K'] padded rows → [H·P, K'].
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_buckets: tuple[Bucket, ...],
        key_buckets: tuple[Bucket, ...],
        num_heads: int,
        causal: bool,
    ) -> Tensor:
        output = query.new_empty(len(query), value.shape[1])
        weights = []
        with torch.autocast("cpu", enabled=False):
            for q, k, v, out, bucket in zip(
                _split(query, query_buckets, num_heads),
                _split(key, key_buckets, num_heads),
                _split(value, key_buckets, num_heads),
                _split(output, query_buckets, num_heads),
                key_buckets,
                strict=True,
            ):
                mask = _additive_mask(bucket, num_heads, causal, q.dtype)
                scores = torch.baddbmm(mask, q, k.mT, alpha=1 / math.sqrt(q.shape[-1]))
                weights.append(scores.softmax(-1))
                torch.bmm(weights[-1], v, out=out)
        ctx.save_for_backward(query, key, value, *weights)
        ctx.constants = query_buckets, key_buckets, num_heads
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *weights = ctx.saved_tensors
        query_buckets, key_buckets, num_heads = ctx.constants
        grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        for q, k, v, p, d_out, d_q, d_k, d_v in zip(
            _split(query, query_buckets, num_heads),
            _split(key, key_buckets, num_heads),
            _split(value, key_buckets, num_heads),
            weights,
            _split(grad.contiguous(), query_buckets, num_heads),
            _split(grads[0], query_buckets, num_heads),
            _split(grads[1], key_buckets, num_heads),
            _split(grads[2], key_buckets, num_heads),
            strict=True,
        ):
            scale = 1 / math.sqrt(q.shape[-1])
            torch.bmm(p.mT, d_out, out=d_v)
            d_weights = torch.bmm(d_out, v.mT)
            d_scores = torch._softmax_backward_data(d_weights, p, -1, p.dtype)
            torch.baddbmm(d_q, d_scores, k, beta=0, alpha=scale, out=d_q)
            torch.baddbmm(d_k, d_scores.mT, q, beta=0, alpha=scale, out=d_k)
        return *grads, None, None, None, None


def _split(rows: Tensor, buckets: tuple[Bucket, ...], num_heads: int) -> list[Tensor]:
    """[H·P, K] → [B·H, S, K] of each bucket, without copying."""
    sizes = [num_heads * bucket.num_sequences * bucket.max_length for bucket in buckets]
    return [
        part.view(bucket.num_sequences * num_heads, bucket.max_length, -1)
        for part, bucket in zip(rows.split(sizes), buckets, strict=True)
    ]


def _additive_mask(keys: Bucket, num_heads: int, causal: bool, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and −∞ elsewhere, to broadcast with [B·H, T, S]."""
    if causal:  # padding follows the tokens, so this mask already hides it
        return torch.full((keys.max_length,) * 2, -torch.inf, dtype=dtype).triu_(1)
    if keys.mask is None:
        return torch.zeros(1, dtype=dtype)
    mask = torch.zeros(keys.mask.shape, dtype=dtype).masked_fill_(~keys.mask, -torch.inf)
    return mask.repeat_interleave(num_heads, 0)[:, None]
