"""The layers of §3: embeddings, multi-head attention, feed-forward networks, encoder, decoder.

Equation (1) itself is in ``kernels/packed_attention.py``. Attention runs over packed tokens in
training, and over cached keys and values in decoding.

Shapes: B sentences; S and T lengths of source and target, or of keys and queries; N packed tokens
of the queries, M of the keys; D model; H heads; K, K' sizes of a head's keys and values (the
paper's d_k and d_v); V vocabulary; W beams; P cache slots. Masks are True where attention is
allowed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.batch import Boundaries
from transformer_mt.config import ModelConfig
from transformer_mt.kernels.dropout import dropout
from transformer_mt.kernels.packed_attention import packed_attention, scaled_dot_product_attention
from transformer_mt.kernels.products import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "swish": nn.functional.silu,
    "gelu": nn.functional.gelu,
}
"""Activations of the feed-forward networks, by ``model.activation``."""

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer: packed [M, H·K] and [M, H·K'], or split into heads."""

_MIN_POSITIONS = 1024
"""Minimum size of a table of sinusoids; longer sequences extend it."""


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """Sinusoidal positional encoding (§3.5): sine in even dimensions, cosine in odd ones.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)),
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).

    Returns:
        [num_positions, d_model] float32.
    """
    # In float64: at position 1000 a float32 angle changes the fourth digit of its sine.
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000 ** (two_i / d_model)
    encoding = torch.stack((angle.sin(), angle.cos()), dim=-1)
    return encoding.reshape(num_positions, d_model).float()


class Embedding(nn.Module):
    """Token embeddings scaled by √d_model (§3.4), plus positional encodings (§3.5)."""

    sinusoids: Tensor
    """[positions, D], extended when needed; empty if positions are learned."""

    def __init__(self, vocab_size: int, config: ModelConfig):
        super().__init__()
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        self.learned_positions = config.positions == "learned"
        if self.learned_positions:
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        self.register_buffer("sinusoids", torch.empty(0, config.d_model), persistent=False)
        if not self.weight.is_meta:
            self.reserve(1)  # now: a compiled step cannot replace the table
            for parameter in self.parameters():  # scaled tokens have unit variance
                nn.init.normal_(parameter, std=config.d_model**-0.5)

    def forward(self, tokens: Tensor, positions: Tensor, max_length: int) -> Tensor:
        """Embeds tokens at positions below ``max_length``: [N] and [N] int64 → [N, D]."""
        self.reserve(max_length)
        table = self.positions if self.learned_positions else self.sinusoids
        return nn.functional.embedding(tokens, self.weight) * self.scale + table[positions]

    def reserve(self, length: int) -> None:
        """Extends the table of positions to ``length``."""
        if self.learned_positions or len(self.sinusoids) >= length:
            return
        number = max(_MIN_POSITIONS, 2 * length)  # doubled, so that decoding rarely extends it
        with torch.inference_mode(mode=False):  # training may use it later
            self.sinusoids = sinusoids(number, self.weight.shape[1]).to(self.weight)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H·K] → [B, H, T, K]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def linear_layer(inputs: int, *outputs: int, bias: bool = True) -> Linear:
    """A linear layer of one or more matrices that read the same input; biases begin as 0.

    The paper gives no initial weights. As in its authors' code, those of each matrix are uniform in
    ±√(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16).
    """
    layer = Linear(inputs, sum(outputs), bias)
    if not layer.weight.is_meta:  # PyTorch takes long to prepare for these on meta tensors
        for matrix in layer.weight.detach().split(outputs):
            nn.init.xavier_uniform_(matrix)
        if bias:
            nn.init.zeros_(layer.bias)
    return layer


class SelfAttention(nn.Module):
    """Multi-head self-attention (§3.2.2); without biases, as in the paper, by default.

    W_i^Q, W_i^K and W_i^V of all heads are one matrix, ``qkv_proj``.
    """

    def __init__(self, config: ModelConfig, causal: bool):
        super().__init__()
        self.num_heads = config.num_heads
        self.causal = causal
        self.dropout = config.attention_dropout
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, keys, values]
        bias = config.attention_bias
        self.qkv_proj = linear_layer(config.d_model, *self.sizes, bias=bias)
        self.out_proj = linear_layer(values, config.d_model, bias=bias)

    def forward(self, x: Tensor, boundaries: Boundaries) -> Tensor:
        """[N, D] → [N, D]; each token attends within its own sequence."""
        q, k, v = self.qkv_proj(x).split(self.sizes, dim=-1)
        p_drop = self.dropout if self.training else 0.0
        heads = packed_attention(
            q, k, v, boundaries, boundaries, self.num_heads, self.causal, p_drop
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
        newest = self.qkv_proj(x).unflatten(0, slots[1].shape).to(cache.dtype)
        query, cache[slots] = newest.split([self.sizes[0], sum(self.sizes[1:])], dim=-1)
        keys, values = cache.split(self.sizes[1:], dim=-1)
        q, k = split_heads(query, self.num_heads), split_heads(keys, self.num_heads)
        heads = scaled_dot_product_attention(q, k, split_heads(values, self.num_heads), mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2).flatten(0, 1))


class CrossKVProjection(nn.Module):
    """Keys and values of the cross-attention: W_i^K and W_i^V of all decoder layers, one matrix.

    All layers read the same encoder output, so one product serves them all.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.sizes = [keys, values] * config.num_decoder_layers
        self.proj = linear_layer(config.d_model, *self.sizes, bias=config.attention_bias)

    def forward(self, memory: Tensor) -> list[KeyValue]:
        """[M, D] encoder output → keys [M, H·K] and values [M, H·K'] of each decoder layer."""
        parts = self.proj(memory).split(self.sizes, dim=-1)
        return list(zip(parts[::2], parts[1::2], strict=True))


class CrossAttention(nn.Module):
    """Encoder–decoder attention (§3.2.3): queries from the target, keys and values of the source.

    It holds W^Q and W^O only; W^K and W^V are in ``CrossKVProjection``.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        keys, values = config.num_heads * config.key_size, config.num_heads * config.value_size
        self.q_proj = linear_layer(config.d_model, keys, bias=config.attention_bias)
        self.out_proj = linear_layer(values, config.d_model, bias=config.attention_bias)

    def forward(
        self, x: Tensor, boundaries: Boundaries, cross_kv: KeyValue, src_boundaries: Boundaries
    ) -> Tensor:
        """[N, D] target tokens and this layer's packed keys and values → [N, D]."""
        p_drop = self.dropout if self.training else 0.0
        heads = packed_attention(
            self.q_proj(x), *cross_kv, boundaries, src_boundaries, self.num_heads, dropout=p_drop
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


class Dropout(nn.Dropout):
    """Dropout (§5.4), by ``kernels.dropout``."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes elements with probability p and scales the rest by 1 / (1 − p)."""
        return dropout(x, self.p) if self.training and self.p > 0 else x


class FeedForward(nn.Module):
    """Position-wise feed-forward network: FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, equation (2).

    ``model.activation`` may replace the max(0, ·) of ReLU.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.linear1 = linear_layer(config.d_model, config.d_ff)
        self.linear2 = linear_layer(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] → [N, D]."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class Residual(nn.Module):
    """Residual connection and layer normalisation around each sub-layer (§3.1).

    ``norm=post``: LayerNorm(x + Dropout(Sublayer(x))), as in the paper.
    ``norm=pre``: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[..., Tensor], *args: Any) -> Tensor:
        """[N, D] → [N, D]; ``args`` are the other arguments of the sub-layer."""
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x), *args))
        return self.norm(x + self.dropout(sublayer(x, *args)))


class EncoderLayer(nn.Module):
    """Encoder layer (§3.1): self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = SelfAttention(config, causal=False)
        self.feed_forward = FeedForward(config)
        self.residual1, self.residual2 = Residual(config), Residual(config)

    def forward(self, x: Tensor, boundaries: Boundaries) -> Tensor:
        """[N, D] → [N, D]."""
        x = self.residual1(x, self.self_attention, boundaries)
        return self.residual2(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Decoder layer (§3.1): causal self-attention, cross-attention, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = SelfAttention(config, causal=True)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residual1, self.residual2 = Residual(config), Residual(config)
        self.residual3 = Residual(config)

    def forward(
        self, x: Tensor, boundaries: Boundaries, cross_kv: KeyValue, src_boundaries: Boundaries
    ) -> Tensor:
        """[N, D] target tokens and this layer's packed cross-attention keys and values → [N, D]."""
        x = self.residual1(x, self.self_attention, boundaries)
        x = self.residual2(x, self.cross_attention, boundaries, cross_kv, src_boundaries)
        return self.residual3(x, self.feed_forward)

    def step(
        self,
        x: Tensor,
        cache: Tensor,
        slots: tuple[Tensor, Tensor],
        mask: Tensor,
        cross_kv: KeyValue,
        source_mask: Tensor | None,
    ) -> Tensor:
        """One decoding step, [B·W, D] → [B·W, D]; for the arguments see the attention layers."""
        x = self.residual1(x, self.self_attention.step, cache, slots, mask)
        x = self.residual2(x, self.cross_attention.step, cross_kv, source_mask)
        return self.residual3(x, self.feed_forward)
