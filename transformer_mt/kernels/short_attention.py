"""Attention over packed short sequences on a GPU: equation (1), a program for a sequence and head.

    O = dropout(softmax(Q Kᵀ / √d_k)) V

FlashAttention's tiles are 128 × 128, its backward pass adds up dQ with atomics, and most sentences
have less than 64 tokens. Here tiles are 64 × 64, and one program has all queries and keys of a
sequence: sums have a fixed order, so its gradients are the same bit for bit in each run. Of the
forward pass only O and the log-sum-exp of each row are kept:

    Pᵢⱼ = exp(qᵢ·kⱼ / √d_k − Lᵢ)        dV = (P ∘ M)ᵀ dO
    dS = P ∘ (M ∘ dO Vᵀ − rowsum(dO ∘ O))        dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k

with the dropout mask M, 0 or 1 / (1 − p), which is computed again from seed and position.

No GPU has run this. Tests show that Triton's interpreter computes the equation, and that the
kernels compile for one (``tests/fake_gpu``).

Shapes: B sequences; N, M packed rows of queries and keys; H heads; D = d_k = d_v.
"""

# ruff: noqa: N803, E741 (the names of the equation)

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 64
"""Rows of a tile: a sequence of up to 64 tokens is one, and the backward pass a single pass."""
_WARPS = 4


@triton.jit
def _rows(x, first, rows, length, stride, columns):
    """Rows of a head of a packed tensor; zeros after the end of the sequence: [_TILE, D]."""
    places = (first + rows).to(tl.int64)[:, None] * stride + columns[None, :]
    return tl.load(x + places, mask=(rows < length)[:, None], other=0.0)


@triton.jit
def _write(x, values, first, rows, length, stride, columns):
    places = (first + rows).to(tl.int64)[:, None] * stride + columns[None, :]
    tl.store(x + places, values.to(x.dtype.element_ty), mask=(rows < length)[:, None])


@triton.jit
def _scores(q, k, rows, keys, num_keys, scale, CAUSAL: tl.constexpr):
    """Q Kᵀ · scale; −∞ where attention is not allowed. Each row of a tile has a key."""
    allowed = (keys < num_keys)[None, :]
    if CAUSAL:
        allowed = allowed & (keys[None, :] <= rows[:, None])
    return tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit
def _mask(seed, first, rows, keys, DROPOUT: tl.constexpr):
    """M by seed, head, packed row and key: 32 bits, in which distant rows may coincide."""
    row = (first + rows) * tl.num_programs(1) + tl.program_id(1)
    kept = tl.rand(tl.load(seed), row[:, None] * 1024 + keys[None, :]) >= DROPOUT
    return tl.where(kept, 1 / (1 - DROPOUT), 0.0)


@triton.jit
def _forward(
    Q, K, V, O, L, query_ends, key_ends, seed, q_stride, k_stride, v_stride, o_stride, num_rows,
    scale, DROPOUT: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    q0, k0 = tl.load(query_ends + sequence), tl.load(key_ends + sequence)
    queries = tl.load(query_ends + sequence + 1) - q0
    num_keys = tl.load(key_ends + sequence + 1) - k0
    columns = head * D + tl.arange(0, D)
    for i in range(0, queries, TILE):
        rows = i + tl.arange(0, TILE)
        q = _rows(Q, q0, rows, queries, q_stride, columns)
        largest = tl.full([TILE], float("-inf"), tl.float32)
        total = tl.zeros([TILE], tl.float32)
        out = tl.zeros([TILE, D], tl.float32)
        end = tl.minimum(num_keys, i + TILE) if CAUSAL else num_keys
        for j in range(0, end, TILE):
            keys = j + tl.arange(0, TILE)
            k = _rows(K, k0, keys, num_keys, k_stride, columns)
            v = _rows(V, k0, keys, num_keys, v_stride, columns)
            s = _scores(q, k, rows, keys, num_keys, scale, CAUSAL)
            new = tl.maximum(largest, tl.max(s, 1))
            shrink, p = tl.exp2(largest - new), tl.exp2(s - new[:, None])
            total = total * shrink + tl.sum(p, 1)
            if DROPOUT > 0:
                p *= _mask(seed, q0, rows, keys, DROPOUT)
            out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v)
            largest = new
        total = tl.where(total > 0, total, 1.0)  # no keys: zeros
        _write(O, out / total[:, None], q0, rows, queries, o_stride, columns)
        tl.store(L + head * num_rows + q0 + rows, largest + tl.log2(total), mask=rows < queries)


@triton.jit
def _gradients(
    q, k, v, d_out, out, lse, seed, first, rows, keys, num_keys, scale, DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """P ∘ M and dS of a tile. Rows after the end of the sequence have dO = 0, and so dS = 0."""
    p = tl.exp2(_scores(q, k, rows, keys, num_keys, scale, CAUSAL) - lse[:, None])
    d_p, kept = tl.dot(d_out, tl.trans(v)), p
    if DROPOUT > 0:
        mask = _mask(seed, first, rows, keys, DROPOUT)
        d_p, kept = d_p * mask, p * mask
    d_s = p * (d_p - tl.sum(d_out.to(tl.float32) * out.to(tl.float32), 1)[:, None])
    return kept.to(q.dtype), d_s.to(q.dtype)


@triton.jit
def _backward(
    Q, K, V, O, L, dO, dQ, dK, dV, query_ends, key_ends, seed, q_stride, k_stride, v_stride,
    o_stride, num_rows, scale, natural_scale, DROPOUT: tl.constexpr, CAUSAL: tl.constexpr,
    D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    q0, k0 = tl.load(query_ends + sequence), tl.load(key_ends + sequence)
    queries = tl.load(query_ends + sequence + 1) - q0
    num_keys = tl.load(key_ends + sequence + 1) - k0
    columns, tile = head * D + tl.arange(0, D), tl.arange(0, TILE)
    lse_of_head = L + head * num_rows + q0
    is_one_tile = (queries <= TILE) & (num_keys <= TILE) & (num_keys > 0)
    for j in range(0, num_keys, TILE):
        keys = j + tile
        k = _rows(K, k0, keys, num_keys, k_stride, columns)
        v = _rows(V, k0, keys, num_keys, v_stride, columns)
        d_k, d_v = tl.zeros([TILE, D], tl.float32), tl.zeros([TILE, D], tl.float32)
        for i in range(j if CAUSAL else 0, queries, TILE):
            rows = i + tile
            q = _rows(Q, q0, rows, queries, q_stride, columns)
            out = _rows(O, q0, rows, queries, o_stride, columns)
            d_out = _rows(dO, q0, rows, queries, o_stride, columns)
            lse = tl.load(lse_of_head + rows, mask=rows < queries, other=0.0)
            kept, d_s = _gradients(
                q, k, v, d_out, out, lse, seed, q0, rows, keys, num_keys, scale, DROPOUT, CAUSAL
            )
            d_v += tl.dot(tl.trans(kept), d_out)
            d_k += tl.dot(tl.trans(d_s), q)
            if is_one_tile:
                d_q = tl.dot(d_s, k) * natural_scale
                _write(dQ, d_q, q0, rows, queries, o_stride, columns)
        _write(dK, d_k * natural_scale, k0, keys, num_keys, o_stride, columns)
        _write(dV, d_v, k0, keys, num_keys, o_stride, columns)
    if not is_one_tile:
        for i in range(0, queries, TILE):
            rows = i + tile
            q = _rows(Q, q0, rows, queries, q_stride, columns)
            out = _rows(O, q0, rows, queries, o_stride, columns)
            d_out = _rows(dO, q0, rows, queries, o_stride, columns)
            lse = tl.load(lse_of_head + rows, mask=rows < queries, other=0.0)
            d_q = tl.zeros([TILE, D], tl.float32)
            for j in range(0, tl.minimum(num_keys, i + TILE) if CAUSAL else num_keys, TILE):
                keys = j + tile
                k = _rows(K, k0, keys, num_keys, k_stride, columns)
                v = _rows(V, k0, keys, num_keys, v_stride, columns)
                _, d_s = _gradients(
                    q, k, v, d_out, out, lse, seed, q0, rows, keys, num_keys, scale, DROPOUT, CAUSAL
                )
                d_q += tl.dot(d_s, k)
            _write(dQ, d_q * natural_scale, q0, rows, queries, o_stride, columns)


@torch.library.custom_op("transformer_mt::short_attention", mutates_args=())
def short_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    seed: Tensor,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Attention of query sequence i to key sequence i; a sequence without keys gives zeros.

    Args:
        query: [N, H, D], in bf16, fp16 or fp32; rows may be strided. D is 16, 32, 64 or 128.
        key: [M, H, D].
        value: [M, H, D].
        query_ends: [B + 1] int32, cumulative lengths of the query sequences.
        key_ends: [B + 1] int32, of the key sequences.
        seed: [1] int64, of the dropout.
        causal: Query t attends to keys up to t only (§3.2.3); both sides have the same lengths.
        dropout: Probability of dropout on the attention weights.

    Returns:
        [N, H, D] contiguous; and [H, N] fp32, the binary logarithm of Σⱼ exp(qᵢ·kⱼ / √d_k), which
        has no gradient.
    """
    (N, H, D), out = query.shape, query.new_empty(query.shape)
    lse = query.new_empty(H, N, dtype=torch.float32)
    strides = query.stride(0), key.stride(0), value.stride(0), out.stride(0)
    _forward[len(query_ends) - 1, H](
        *(query, key, value, out, lse, query_ends, key_ends, seed, *strides, N),
        math.log2(math.e) / math.sqrt(D),
        DROPOUT=dropout, CAUSAL=causal, D=D, TILE=_TILE, num_warps=_WARPS, num_stages=1,
    )  # fmt: skip
    return out, lse


@torch.library.custom_op("transformer_mt::short_attention_backward", mutates_args=())
def short_attention_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    seed: Tensor,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, contiguous, for [N, H, D] contiguous ``d_out``."""
    (N, H, D), scale = query.shape, 1 / math.sqrt(query.shape[2])
    d_query, d_key, d_value = (x.new_empty(x.shape) for x in (query, key, value))
    strides = query.stride(0), key.stride(0), value.stride(0), out.stride(0)
    _backward[len(query_ends) - 1, H](
        *(query, key, value, out, lse, d_out, d_query, d_key, d_value),
        *(query_ends, key_ends, seed, *strides, N, scale * math.log2(math.e), scale),
        DROPOUT=dropout, CAUSAL=causal, D=D, TILE=_TILE, num_warps=_WARPS, num_stages=1,
    )  # fmt: skip
    return d_query, d_key, d_value


@short_attention.register_fake
def _(query, key, value, query_ends, key_ends, seed, causal, dropout):
    lse = query.new_empty(query.shape[1], query.shape[0], dtype=torch.float32)
    return query.new_empty(query.shape), lse


@short_attention_backward.register_fake
def _(d_out, query, key, value, *_):
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def _save(ctx, inputs, output):
    query, key, value, query_ends, key_ends, seed, ctx.causal, ctx.dropout = inputs
    ctx.save_for_backward(query, key, value, *output, query_ends, key_ends, seed)


def _differentiate(ctx, d_out, _):
    gradients = short_attention_backward(
        d_out.contiguous(), *ctx.saved_tensors, ctx.causal, ctx.dropout
    )
    return *gradients, None, None, None, None, None


short_attention.register_autograd(_differentiate, setup_context=_save)
