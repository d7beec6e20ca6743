"""Attention (§3.2): scaled dot products, several heads, and the caches that decoding keeps.

Shapes: N, M flat tokens, the sequences one below the other without padding (``data/packed.py``);
B sequences of a group; S keys, T queries a sequence; W beams; P cached positions; D model; H heads;
K, K' sizes of a head's keys and values (the paper's d_k and d_v). Masks are True where attention is
allowed.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.batch import Bucket, Buckets, CuSeqlens, Layout
from transformer_mt.config import ModelConfig
from transformer_mt.model.linear import Linear
from transformer_mt.model.varlen import varlen_attention

_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, equation (1), by PyTorch's fused kernels.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, K'].
        mask: [B, 1, 1 or T, S] bool, True for real keys, or numbers to add; None if all are.
        causal: Let query t see keys up to t only (§3.2.3).

    Returns:
        [B, H, T, K'].
    """
    # Not cuDNN's kernel, which takes half a second to plan each new shape.
    kernels = sdpa_kernel(_KERNELS) if query.device.type == "cuda" else nullcontext()
    # In the dtype given: autocast would take fp32 to bf16 here.
    with kernels, torch.autocast(query.device.type, enabled=False):
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)


class _Pad(torch.autograd.Function):
    """Flat rows to padded rows by a gather each way; padding itself never has a gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(rows)
        return x.index_select(0, tokens)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (rows,) = ctx.saved_tensors
        return grad.index_select(0, rows), None, None


class _Unpad(torch.autograd.Function):
    """Padded rows to flat rows; the gradient puts zeros where the padding was."""

    @staticmethod
    def forward(ctx, x: Tensor, rows: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(rows)
        ctx.n = x.shape[0]
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (rows,) = ctx.saved_tensors
        return grad.new_zeros(ctx.n, grad.shape[1]).index_copy_(0, rows, grad), None


def pad(x: Tensor, bucket: Bucket) -> Tensor:
    """A group's flat rows [n, F] as [B, length, F]; padding repeats a sequence's last token."""
    if bucket.pad_indices is not None:
        x = _Pad.apply(x, bucket.pad_indices, bucket.unpad_indices)
    return x.view(bucket.num_sequences, bucket.max_length, -1)


def unpad(x: Tensor, bucket: Bucket) -> Tensor:
    """The way back: [B, length, F] to the group's flat rows [n, F]."""
    rows = x.reshape(bucket.num_sequences * bucket.max_length, -1)
    return rows if bucket.unpad_indices is None else _Unpad.apply(rows, bucket.unpad_indices)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_layout: Layout,
    key_layout: Layout,
    num_heads: int,
    causal: bool = False,
) -> Tensor:
    """Multi-head attention over flat tokens, sequence i of the queries on sequence i of the keys.

    Args:
        query: [N, H·K]
        key: [M, H·K]
        value: [M, H·K']
        query_layout: Where sequences begin in the query rows.
        key_layout: The same for the key rows: as many sequences, or groups of them.
        num_heads: H.
        causal: See ``scaled_dot_product_attention``.

    Returns:
        [N, H·K'], the heads side by side.
    """
    if isinstance(query_layout, CuSeqlens):
        assert isinstance(key_layout, CuSeqlens)
        q, k, v = (x.unflatten(-1, (num_heads, -1)) for x in (query, key, value))
        return varlen_attention(q, k, v, query_layout, key_layout, causal).flatten(1)
    assert isinstance(key_layout, Buckets)
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        # The CPU kernel's backward pass is several times slower in bf16 than in fp32.
        query, key, value = query.float(), key.float(), value.float()
    outputs = []
    for queries, keys, q, k, v in zip(
        query_layout.buckets,
        key_layout.buckets,
        # Split, not sliced: the gradient of all parts is then one concatenation.
        query.split([bucket.num_tokens for bucket in query_layout.buckets]),
        key.split([bucket.num_tokens for bucket in key_layout.buckets]),
        value.split([bucket.num_tokens for bucket in key_layout.buckets]),
        strict=True,
    ):
        # Padding follows the tokens, so a causal mask already hides it from every token.
        mask = None if causal or keys.mask is None else keys.mask[:, None, None, :]
        heads = scaled_dot_product_attention(
            split_heads(pad(q, queries), num_heads),
            split_heads(pad(k, keys), num_heads),
            split_heads(pad(v, keys), num_heads),
            mask,
            causal,
        )
        outputs.append(unpad(heads.transpose(1, 2).flatten(2), queries))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H·K] → [B, H, T, K]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class SelfAttention(nn.Module):
    """Multi-head self-attention (§3.2.2): W_i^Q, W_i^K, W_i^V of all heads are one matrix.

    Like the paper's projections, none has a bias.
    """

    def __init__(self, config: ModelConfig, causal: bool):
        super().__init__()
        self.num_heads = config.num_heads
        self.causal = causal
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        self.qkv_proj = Linear(config.d_model, sum(self.sizes), bias=False)
        self.out_proj = Linear(values, config.d_model, bias=False)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """[N, D] → [N, D], every token attending to its own sequence."""
        q, k, v = self.qkv_proj(x).split(self.sizes, dim=-1)
        return self.out_proj(attend(q, k, v, layout, layout, self.num_heads, self.causal))

    def step(
        self, x: Tensor, cache: Tensor, entries: tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        """One more position of each of W beams a sentence.

        Args:
            x: [B·W, D].
            cache: [B, P, H·K + H·K'], a sentence's keys and, beside them, values.
            entries: Where those of the newest position are put: [B, 1] and [B, W], places in the
                first and the second dimension.
            mask: [B, 1, W, P], 0 for the entries that a beam has and −∞ for the others.

        Returns:
            [B·W, D].
        """
        query, newest = (
            part.unflatten(0, entries[1].shape).to(cache.dtype)
            for part in self.qkv_proj(x).split([self.sizes[0], sum(self.sizes[1:])], dim=-1)
        )
        cache[entries] = newest
        keys, values = cache.split(self.sizes[1:], dim=-1)
        heads = scaled_dot_product_attention(
            split_heads(query, self.num_heads),
            split_heads(keys, self.num_heads),
            split_heads(values, self.num_heads),
            mask,
        )
        return self.out_proj(heads.transpose(1, 2).flatten(2).flatten(0, 1))


KeysValues = tuple[Tensor, Tensor]
"""A layer's keys and values, flat [M, H·K] and [M, H·K'] or split in heads, as said."""


class SourceProjection(nn.Module):
    """The keys and values of the source, W_i^K and W_i^V of all decoder layers' cross-attention.

    All layers read the same encoder output, so all their projections are one matrix product.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values] * config.num_decoder_layers
        self.proj = Linear(config.d_model, sum(self.sizes), bias=False)

    def forward(self, memory: Tensor) -> list[KeysValues]:
        """[M, D] → each decoder layer's keys [M, H·K] and values [M, H·K']."""
        parts = self.proj(memory).split(self.sizes, dim=-1)
        return list(zip(parts[::2], parts[1::2], strict=True))


class CrossAttention(nn.Module):
    """Encoder–decoder attention (§3.2.3): the target asks, the source answers.

    Here are W^Q and W^O. W^K and W^V of all layers are in ``SourceProjection``.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.q_proj = Linear(config.d_model, config.num_heads * config.key_size, bias=False)
        self.out_proj = Linear(config.num_heads * config.value_size, config.d_model, bias=False)

    def forward(self, x: Tensor, layout: Layout, source: KeysValues, src_layout: Layout) -> Tensor:
        """[N, D] target tokens, this layer's flat keys and values of M source tokens → [N, D]."""
        q = self.q_proj(x)
        return self.out_proj(attend(q, *source, layout, src_layout, self.num_heads))

    def step(self, x: Tensor, source: KeysValues, mask: Tensor | None) -> Tensor:
        """One position of each of W beams a sentence.

        The beams are so many queries on one copy of the source: it is never expanded by W.

        Args:
            x: [B·W, D].
            source: Keys [B, H, S, K] and values [B, H, S, K'] of B sentences.
            mask: [B, 1, 1, S], 0 for source tokens and −∞ for padding; None if there is none.

        Returns:
            [B·W, D].
        """
        beams = self.q_proj(x).unflatten(0, (source[0].shape[0], -1)).to(source[0].dtype)
        heads = scaled_dot_product_attention(split_heads(beams, self.num_heads), *source, mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2).view(x.shape[0], -1))
