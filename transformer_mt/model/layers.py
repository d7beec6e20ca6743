"""Encoder and decoder layers (§3.1), feed-forward networks (§3.3) and dropout (§5.4).

Shapes: N, M packed target and source tokens, without padding; B sentences; W beams; D model.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_mt.batch import Boundaries
from transformer_mt.config import ModelConfig
from transformer_mt.kernels.products import Linear
from transformer_mt.model.attention import CrossAttention, KeyValue, SelfAttention

LAYER_NORM_EPS = 1e-6
"""As in the authors' code; PyTorch's default is 1e-5."""


class Dropout(nn.Module):
    """Residual dropout (§5.4).

    On a CPU the mask is drawn from random bits, several times faster than ``nn.Dropout``, and the
    result is fp32 at least: bf16 would round 1 / (1 − p) by up to 0.4%.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """The setting that ``print`` shows."""
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes elements with probability p and scales the rest by 1 / (1 − p)."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        # Each 64-bit draw gives four 16-bit numbers, so p is exact to 1/65536.
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        threshold = min(round(self.p * 65536), 65535) - 32768
        keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= threshold
        dtype = torch.promote_types(x.dtype, torch.float32)
        return x * keep.to(dtype).mul_(1 / (1 - self.p))


class FeedForward(nn.Module):
    """Position-wise feed-forward network: FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, equation (2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.linear1 = Linear(config.d_model, config.d_ff)
        self.linear2 = Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] → [N, D]."""
        return self.linear2(torch.relu(self.linear1(x)))


class Residual(nn.Module):
    """Residual connection and layer normalisation around each sub-layer (§3.1).

    ``norm=post``: LayerNorm(x + Dropout(Sublayer(x))), as in the paper.
    ``norm=pre``: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[N, D] → [N, D]."""
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Encoder layer (§3.1): self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = SelfAttention(config, causal=False)
        self.feed_forward = FeedForward(config)
        self.residual1, self.residual2 = Residual(config), Residual(config)

    def forward(self, x: Tensor, boundaries: Boundaries) -> Tensor:
        """[N, D] → [N, D]."""
        x = self.residual1(x, lambda y: self.self_attention(y, boundaries))
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
        x = self.residual1(x, lambda y: self.self_attention(y, boundaries))
        x = self.residual2(
            x, lambda y: self.cross_attention(y, boundaries, cross_kv, src_boundaries)
        )
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
        x = self.residual1(x, lambda y: self.self_attention.step(y, cache, slots, mask))
        x = self.residual2(x, lambda y: self.cross_attention.step(y, cross_kv, source_mask))
        return self.residual3(x, self.feed_forward)
