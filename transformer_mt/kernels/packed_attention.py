"""Attention over packed sequences: softmax(Q Kᵀ / √d_k) V of each sequence, equation (1).

What is fast depends on the device. A GPU has a kernel for sequences of different lengths. Elsewhere
each bucket of sequences is padded to one length; PyTorch's fused kernel is made for long ones. In
training on a CPU, the three steps of the equation are faster for sentences, in bf16 several times.
Dropout of the attention weights is part of each kernel: on a CPU with a mask of random bits.

Shapes: B sequences, T and S lengths of queries and keys, of one bucket; N, M packed rows of queries
and keys; P padded rows of all buckets; H heads; K, K' sizes of a head's keys and values.
"""

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.batch import Boundaries, Bucket, Buckets, CuSeqlens
from transformer_mt.kernels.dropout import kept

_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

_EAGER_LENGTH = 512
"""Maximum length of a sequence for ``_EagerAttention``, which stores its H · S² weights."""


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_boundaries: Boundaries,
    key_boundaries: Boundaries,
    num_heads: int,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Multi-head attention of query sequence i to key sequence i, on projected packed tokens.

    Args:
        query: [N, H·K].
        key: [M, H·K].
        value: [M, H·K'].
        query_boundaries: Boundaries of the query sequences.
        key_boundaries: Boundaries of the key sequences, in the same buckets.
        num_heads: H.
        causal: Query t attends to keys up to t only (§3.2.3).
        dropout: Probability of dropout on the attention weights.

    Returns:
        [N, H·K'], the concatenated heads, before the output projection.
    """
    if isinstance(query_boundaries, CuSeqlens):
        assert isinstance(key_boundaries, CuSeqlens)
        q, k, v = (x.unflatten(-1, (num_heads, -1)) for x in (query, key, value))
        boundaries = query_boundaries, key_boundaries
        return varlen_attention(q, k, v, *boundaries, causal, dropout).flatten(1)
    assert isinstance(key_boundaries, Buckets)
    if query.device.type == "cpu":
        longest = max(query_boundaries.max_length, key_boundaries.max_length)
        if torch.is_grad_enabled() and longest <= _EAGER_LENGTH:
            heads: Tensor = _EagerAttention.apply(
                query, key, value, query_boundaries, key_boundaries, num_heads, causal, dropout
            )
            return heads
        # The fused kernel is slower in bf16 than in fp32 on a CPU, backward several times.
        if query.dtype == torch.bfloat16:
            query, key, value = query.float(), key.float(), value.float()
    outputs = []
    for bucket, q, k, v in zip(
        key_boundaries.buckets,
        pad_heads(query, query_boundaries, num_heads),
        pad_heads(key, key_boundaries, num_heads),
        pad_heads(value, key_boundaries, num_heads),
        strict=True,
    ):
        # Padding follows the tokens, so the causal mask already hides it.
        mask = None if causal or bucket.mask is None else bucket.mask[:, None, None]
        output = scaled_dot_product_attention(q, k, v, mask, causal, dropout)
        outputs.append(output.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(outputs).index_select(0, query_boundaries.unpad_indices)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """The weights of equation (1), softmax(Q Kᵀ / √d_k + mask), written out.

    Args:
        query: [B, T, K].
        key: [B, S, K].
        mask: 0 where attention is allowed and −∞ elsewhere, to broadcast with [B, T, S].

    Returns:
        [B, T, S]; each row sums to 1.
    """
    scores = torch.baddbmm(mask, query, key.mT, alpha=1 / math.sqrt(query.shape[-1]))
    # With AVX-512, PyTorch's 16-bit softmax of fewer than 32 keys is slow.
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.softmax(-1, dtype=dtype).to(scores.dtype)


def causal_mask(length: int, dtype: torch.dtype) -> Tensor:
    """[length, length]: 0 for a position and those before it, −∞ for later ones (§3.2.3)."""
    return torch.full((length, length), -torch.inf, dtype=dtype).triu_(1)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, equation (1), by PyTorch's fused kernels.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, K'].
        mask: [B, 1, 1 or T, S]: bool, or float to add to the scores; None allows every key.
        causal: Query t attends to keys up to t only (§3.2.3).
        dropout: Probability of dropout on the attention weights.

    Returns:
        [B, H, T, K'].
    """
    # Not cuDNN's kernel, which takes half a second to plan each new shape.
    kernels = sdpa_kernel(_KERNELS) if query.device.type == "cuda" else nullcontext()
    # Autocast would convert fp32 inputs to bf16.
    with kernels, torch.autocast(query.device.type, enabled=False):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_boundaries: CuSeqlens,
    key_boundaries: CuSeqlens,
    causal: bool,
    dropout: float = 0.0,
) -> Tensor:
    """``packed_attention`` without padding: [N, H, K], [M, H, K] and [M, H, K] → [N, H, K].

    On a GPU this is FlashAttention's variable-length kernel, in bf16 or fp16. A CPU has none: there
    one mask over all pairs of tokens gives the same result, for tests.
    """
    sizes = query_boundaries.max_length, key_boundaries.max_length
    lengths = query_boundaries.cu_seqlens, key_boundaries.cu_seqlens
    if query.device.type == "cuda":
        # Not ``varlen_attn``, which has no dropout, and from torch 2.14 on may choose cuDNN's
        # kernel, which is slower for sentences.
        output: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, *lengths, *sizes, dropout, causal, return_debug_mask=False
        )[0]
        return output
    query_sequence, key_sequence = (
        torch.searchsorted(cu_seqlens[1:], torch.arange(len(x), dtype=torch.int32), right=True)
        for cu_seqlens, x in zip(lengths, (query, key), strict=True)
    )
    mask = query_sequence[:, None] == key_sequence
    if causal:
        mask = mask.tril()
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    return scaled_dot_product_attention(q, k, v, mask, dropout=dropout)[0].transpose(0, 1)


def pad_heads(x: Tensor, boundaries: Buckets, num_heads: int) -> list[Tensor]:
    """Packed rows [N, H·K] → padded heads [B, H, S, K] of each bucket."""
    rows, start, padded = x.index_select(0, boundaries.pad_indices), 0, []
    for bucket in boundaries.buckets:
        B, S = bucket.num_sequences, bucket.max_length
        sequences = rows[start : start + B * S].view(B, S, num_heads, -1)
        padded.append(sequences.transpose(1, 2))
        start += B * S
    return padded


# Attention in training on a CPU.


def head_rows(boundaries: Buckets, num_heads: int) -> tuple[Tensor, Tensor]:
    """Indices between rows of packed heads [N, H, K] and of padded ones, [B, H, S, K] by bucket.

    They are computed once for all layers.

    Returns:
        [H·P] int64, the packed row in each padded row, and [N·H] int64, each packed row's place
        among the padded rows.
    """
    if num_heads in boundaries.head_rows:
        return boundaries.head_rows[num_heads]
    device = boundaries.pad_indices.device
    heads = torch.arange(num_heads, device=device)[:, None]
    gather, place, start = [], [], 0
    for bucket in boundaries.buckets:
        B, S = bucket.num_sequences, bucket.max_length
        end = start + B * S
        packed = boundaries.pad_indices[start:end].view(B, 1, S)
        gather.append((packed * num_heads + heads).flatten())
        rows = torch.arange(start * num_heads, end * num_heads, device=device)
        place.append(rows.view(B, num_heads, S).transpose(1, 2).reshape(-1, num_heads))
        start = end
    scatter = torch.cat(place).index_select(0, boundaries.unpad_indices).flatten()
    boundaries.head_rows[num_heads] = torch.cat(gather), scatter
    return boundaries.head_rows[num_heads]


def _split(rows: Tensor, boundaries: Buckets, num_heads: int) -> list[Tensor]:
    """Padded rows [H·P, K] → [B·H, S, K] of each bucket, without copying."""
    start, parts = 0, []
    for bucket in boundaries.buckets:
        end = start + num_heads * bucket.num_sequences * bucket.max_length
        parts.append(rows[start:end].view(-1, bucket.max_length, rows.shape[1]))
        start = end
    return parts


class _EagerAttention(torch.autograd.Function):
    """``packed_attention`` by batched matrix products and a softmax, for each bucket."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        queries: Buckets,
        keys: Buckets,
        num_heads: int,
        causal: bool,
        dropout: float,
    ) -> Tensor:
        gather, place = head_rows(queries, num_heads)
        key_gather, _ = head_rows(keys, num_heads)
        padded = [
            x.reshape(-1, x.shape[1] // num_heads).index_select(0, rows)
            for x, rows in ((query, gather), (key, key_gather), (value, key_gather))
        ]
        output = query.new_empty(len(gather), padded[-1].shape[1])
        weights: list[Tensor] = []
        masks: list[Tensor] = []
        sides = queries, keys, keys, queries
        parts = [_split(x, y, num_heads) for x, y in zip((*padded, output), sides, strict=True)]
        with torch.autocast("cpu", enabled=False):
            for q, k, v, out, bucket in zip(*parts, keys.buckets, strict=True):
                mask = _additive_mask(bucket, num_heads, causal, q.dtype)
                weights.append(attention_weights(q, k, mask))
                if dropout == 0:
                    torch.bmm(weights[-1], v, out=out)
                    continue
                masks.append(kept(weights[-1].shape, dropout).to(q.dtype))
                rest = weights[-1] * masks[-1]
                torch.baddbmm(out, rest, v, beta=0, alpha=1 / (1 - dropout), out=out)
        ctx.save_for_backward(*padded, *weights, *masks)
        ctx.constants = queries, keys, num_heads, dropout
        return output.index_select(0, place).view(len(query), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *saved = ctx.saved_tensors
        queries, keys, num_heads, dropout = ctx.constants
        weights, masks = saved[: len(keys.buckets)], saved[len(keys.buckets) :]
        place, key_place = head_rows(queries, num_heads)[1], head_rows(keys, num_heads)[1]
        packed = grad.reshape(len(place), -1)
        # The gradient of padding is zero.
        d_output = packed.new_zeros(len(query), packed.shape[1]).index_copy_(0, place, packed)
        grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        tensors = query, key, value, d_output, *grads
        sides = queries, keys, keys, queries, queries, keys, keys
        parts = [_split(x, y, num_heads) for x, y in zip(tensors, sides, strict=True)]
        for i, (q, k, v, d_out, d_q, d_k, d_v, p) in enumerate(zip(*parts, weights, strict=True)):
            scale = 1 / math.sqrt(q.shape[-1])
            if masks:
                product = partial(torch.baddbmm, beta=0, alpha=1 / (1 - dropout))
                product(d_v, (p * masks[i]).mT, d_out, out=d_v)
                d_weights = product(p, d_out, v.mT).mul_(masks[i])
            else:
                torch.bmm(p.mT, d_out, out=d_v)
                d_weights = torch.bmm(d_out, v.mT)
            dtype = torch.promote_types(p.dtype, torch.float32)
            d_scores = torch._softmax_backward_data(d_weights.to(dtype), p.to(dtype), -1, dtype)
            d_scores = d_scores.to(p.dtype)
            torch.baddbmm(d_q, d_scores, k, beta=0, alpha=scale, out=d_q)
            torch.baddbmm(d_k, d_scores.mT, q, beta=0, alpha=scale, out=d_k)
        places = place, key_place, key_place
        selected = [d.index_select(0, index) for d, index in zip(grads, places, strict=True)]
        d_query, d_key, d_value = [d.view(-1, num_heads * d.shape[1]) for d in selected]
        return d_query, d_key, d_value, None, None, None, None, None


def _additive_mask(keys: Bucket, num_heads: int, causal: bool, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and −∞ elsewhere, to broadcast with [B·H, T, S]."""
    if causal:  # padding follows the tokens, so this mask already hides it
        return causal_mask(keys.max_length, dtype)
    if keys.mask is None:
        return torch.zeros(1, dtype=dtype)
    mask = torch.zeros(keys.mask.shape, dtype=dtype).masked_fill_(~keys.mask, -torch.inf)
    return mask.repeat_interleave(num_heads, 0)[:, None]
