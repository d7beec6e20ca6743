"""Multi-head attention (§3.2): over packed tokens in training, over cached ones in decoding.

Shapes: B sentences; S source and T target length, generally of keys and queries; N packed tokens
of the queries, M of the keys; D model; H heads; K, K' sizes of a head's keys and values (the
paper's d_k and d_v); W beams; P cache slots. Masks are True where attention is allowed.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.batch import Buckets, CuSeqlens, Layout
from transformer_mt.config import ModelConfig
from transformer_mt.kernels.products import Linear
from transformer_mt.model.padding import pad, unpad
from transformer_mt.model.written_out_attention import MAX_LENGTH, written_out_attention

_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

ATTENTION_KERNELS = ("written_out", "fused")
"""Kernels of training on a CPU; all others are fused."""

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer: packed [M, H·K] and [M, H·K'], or split into heads."""


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, equation (1), by PyTorch's fused kernels.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, K'].
        mask: [B, 1, 1 or T, S]: bool, or float to add to the scores; None allows every key.
        causal: Query t attends to keys up to t only (§3.2.3).

    Returns:
        [B, H, T, K'].
    """
    # Not cuDNN's kernel, which takes half a second to plan each new shape.
    kernels = sdpa_kernel(_KERNELS) if query.device.type == "cuda" else nullcontext()
    # Autocast would convert fp32 inputs to bf16.
    with kernels, torch.autocast(query.device.type, enabled=False):
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_layout: CuSeqlens,
    key_layout: CuSeqlens,
    causal: bool,
) -> Tensor:
    """Attention of query sequence i to key sequence i, without padding.

    On a GPU this is FlashAttention's variable-length kernel, in bf16 or fp16. A CPU has none: there
    one mask over all pairs of tokens gives the same result, for tests.

    Args:
        query: [N, H, K].
        key: [M, H, K].
        value: [M, H, K].
        query_layout: Boundaries of the query sequences.
        key_layout: Boundaries of the key sequences, one for each query sequence.
        causal: Query t attends to keys up to t only; the two layouts are then the same.

    Returns:
        [N, H, K].
    """
    if query.device.type == "cuda":
        # Imported here: it loads the compiler, which doubles the start-up time of every command.
        from torch.nn.attention.varlen import varlen_attn

        output = varlen_attn(
            query,
            key,
            value,
            query_layout.cu_seqlens,
            key_layout.cu_seqlens,
            query_layout.max_length,
            key_layout.max_length,
            window_size=(-1, 0) if causal else (-1, -1),
        )
        assert isinstance(output, Tensor)
        return output
    query_sequence, key_sequence = (
        torch.searchsorted(
            layout.cu_seqlens[1:],
            torch.arange(len(x), dtype=torch.int32, device=x.device),
            right=True,
        )
        for layout, x in ((query_layout, query), (key_layout, key))
    )
    mask = query_sequence[:, None] == key_sequence
    if causal:
        mask = mask.tril()
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q, k, v, mask)[0].transpose(0, 1)


def has_varlen_kernel(key_size: int, value_size: int) -> bool:
    """Whether the GPU kernel of ``varlen_attention`` supports heads of these sizes."""
    return key_size == value_size and key_size % 8 == 0 and key_size <= 256


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_layout: Layout,
    key_layout: Layout,
    num_heads: int,
    causal: bool = False,
    kernel: str = ATTENTION_KERNELS[0],
) -> Tensor:
    """Multi-head attention of query sequence i to key sequence i, on projected packed tokens.

    Args:
        query: [N, H·K].
        key: [M, H·K].
        value: [M, H·K'].
        query_layout: Boundaries of the query sequences.
        key_layout: Boundaries of the key sequences, in the same buckets.
        num_heads: H.
        causal: Query t attends to keys up to t only (§3.2.3).
        kernel: One of ``ATTENTION_KERNELS``.

    Returns:
        [N, H·K'], the concatenated heads, before the output projection.
    """
    if isinstance(query_layout, CuSeqlens):
        assert isinstance(key_layout, CuSeqlens)
        q, k, v = (x.unflatten(-1, (num_heads, -1)) for x in (query, key, value))
        return varlen_attention(q, k, v, query_layout, key_layout, causal).flatten(1)
    assert isinstance(key_layout, Buckets)
    training = query.device.type == "cpu" and torch.is_grad_enabled()
    longest = max(query_layout.max_length, key_layout.max_length)
    if training and kernel == "written_out" and longest <= MAX_LENGTH:
        return written_out_attention(query, key, value, query_layout, key_layout, num_heads, causal)
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # The CPU kernel's backward pass is several times slower in bf16 than in fp32.
        query, key, value = query.float(), key.float(), value.float()
    outputs = [
        scaled_dot_product_attention(
            split_heads(q, num_heads),
            split_heads(k, num_heads),
            split_heads(v, num_heads),
            # Padding follows the tokens, so the causal mask already hides it.
            None if causal or keys.mask is None else keys.mask[:, None, None, :],
            causal,
        )
        for q, k, v, keys in zip(
            pad(query, query_layout),
            pad(key, key_layout),
            pad(value, key_layout),
            key_layout.buckets,
            strict=True,
        )
    ]
    return unpad([heads.transpose(1, 2).flatten(2) for heads in outputs], query_layout)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H·K] → [B, H, T, K]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class SelfAttention(nn.Module):
    """Multi-head self-attention (§3.2.2), without biases, as in the paper.

    W_i^Q, W_i^K and W_i^V of all heads are one matrix, ``qkv_proj``.
    """

    kernel = ATTENTION_KERNELS[0]

    def __init__(self, config: ModelConfig, causal: bool):
        super().__init__()
        self.num_heads = config.num_heads
        self.causal = causal
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        self.qkv_proj = Linear(config.d_model, sum(self.sizes), bias=False)
        self.out_proj = Linear(values, config.d_model, bias=False)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """[N, D] → [N, D]; each token attends within its own sequence."""
        q, k, v = self.qkv_proj(x).split(self.sizes, dim=-1)
        heads = multi_head_attention(
            q, k, v, layout, layout, self.num_heads, self.causal, self.kernel
        )
        return self.out_proj(heads)

    def step(self, x: Tensor, cache: Tensor, slots: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """One decoding step: the newest position of each of the W beams per sentence.

        Args:
            x: [B·W, D].
            cache: [B, P, H·K + H·K'], keys and values of a sentence's beams; written in place.
            slots: Indices [B, 1] and [B, W] into ``cache`` for the newest keys and values.
            mask: [B, 1, W, P], 0 for the slots of a beam and −∞ for all others.

        Returns:
            [B·W, D].
        """
        query, newest = (
            part.unflatten(0, slots[1].shape).to(cache.dtype)
            for part in self.qkv_proj(x).split([self.sizes[0], sum(self.sizes[1:])], dim=-1)
        )
        cache[slots] = newest
        keys, values = cache.split(self.sizes[1:], dim=-1)
        q, k, v = (split_heads(part, self.num_heads) for part in (query, keys, values))
        heads = scaled_dot_product_attention(q, k, v, mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2).flatten(0, 1))


class CrossKVProjection(nn.Module):
    """Keys and values of the cross-attention: W_i^K and W_i^V of all decoder layers, one matrix.

    All layers read the same encoder output, so one product serves them all.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values] * config.num_decoder_layers
        self.proj = Linear(config.d_model, sum(self.sizes), bias=False)

    def forward(self, memory: Tensor) -> list[KeyValue]:
        """[M, D] encoder output → keys [M, H·K] and values [M, H·K'] of each decoder layer."""
        parts = self.proj(memory).split(self.sizes, dim=-1)
        return list(zip(parts[::2], parts[1::2], strict=True))


class CrossAttention(nn.Module):
    """Encoder–decoder attention (§3.2.3): queries from the target, keys and values of the source.

    It holds W^Q and W^O only; W^K and W^V are in ``CrossKVProjection``.
    """

    kernel = ATTENTION_KERNELS[0]

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.q_proj = Linear(config.d_model, config.num_heads * config.key_size, bias=False)
        self.out_proj = Linear(config.num_heads * config.value_size, config.d_model, bias=False)

    def forward(self, x: Tensor, layout: Layout, cross_kv: KeyValue, src_layout: Layout) -> Tensor:
        """[N, D] target tokens and this layer's packed keys and values → [N, D]."""
        q = self.q_proj(x)
        heads = multi_head_attention(
            q, *cross_kv, layout, src_layout, self.num_heads, kernel=self.kernel
        )
        return self.out_proj(heads)

    def step(self, x: Tensor, cross_kv: KeyValue, mask: Tensor | None) -> Tensor:
        """One decoding step; the W beams of a sentence are queries to one copy of its source.

        Args:
            x: [B·W, D].
            cross_kv: Keys [B, H, S, K] and values [B, H, S, K'].
            mask: [B, 1, 1, S], 0 for source tokens and −∞ for padding; None without padding.

        Returns:
            [B·W, D].
        """
        keys, _ = cross_kv
        queries = self.q_proj(x).unflatten(0, (keys.shape[0], -1)).to(keys.dtype)
        heads = scaled_dot_product_attention(split_heads(queries, self.num_heads), *cross_kv, mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2).view(x.shape[0], -1))
