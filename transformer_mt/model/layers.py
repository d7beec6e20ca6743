"""BatchIterator-forward networks, encoder layers and decoder layers (§3.1, §3.3, §5.4).

Shapes: N, M flat target and source tokens; B sentences; W beams; D model. Flat: the tokens of all
sentences one below the other, without padding (``data/packed.py``).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_mt.batch import Layout
from transformer_mt.config import ModelConfig
from transformer_mt.model.attention import CrossAttention, KeysValues, SelfAttention
from transformer_mt.model.linear import Linear

LAYER_NORM_EPS = 1e-6
"""The authors' code; PyTorch's default is 1e-5."""


class Dropout(nn.Module):
    """Residual dropout (§5.4).

    On a CPU it is drawn from random bits, several times faster than PyTorch's own.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes elements with probability p and scales the rest by 1 / (1 − p)."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        # One 64-bit draw makes four 16-bit numbers, so p is exact to 1/65536.
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        threshold = min(round(self.p * 65536), 65535) - 32768
        keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= threshold
        return (x * keep.to(x.dtype)) * (1 / (1 - self.p))


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, equation (2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.linear1 = Linear(config.d_model, config.d_ff)
        self.linear2 = Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[N, D] → [N, D]."""
        return self.linear2(torch.relu(self.linear1(x)))


class Residual(nn.Module):
    """The connection around every sub-layer (§3.1).

    ``post``: LayerNorm(x + Dropout(Sublayer(x))), the paper's.
    ``pre``: x + Dropout(Sublayer(LayerNorm(x))).
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
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = SelfAttention(config, causal=False)
        self.feed_forward = FeedForward(config)
        self.residual1, self.residual2 = Residual(config), Residual(config)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """[N, D] → [N, D]."""
        x = self.residual1(x, lambda y: self.self_attention(y, layout))
        return self.residual2(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then feed-forward."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = SelfAttention(config, causal=True)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residual1, self.residual2 = Residual(config), Residual(config)
        self.residual3 = Residual(config)

    def forward(self, x: Tensor, layout: Layout, source: KeysValues, src_layout: Layout) -> Tensor:
        """[N, D] target tokens, this layer's keys and values of M source tokens → [N, D]."""
        x = self.residual1(x, lambda y: self.self_attention(y, layout))
        x = self.residual2(x, lambda y: self.cross_attention(y, layout, source, src_layout))
        return self.residual3(x, self.feed_forward)

    def step(
        self,
        x: Tensor,
        cache: Tensor,
        entries: tuple[Tensor, Tensor],
        mask: Tensor,
        source: KeysValues,
        source_mask: Tensor | None,
    ) -> Tensor:
        """One more position; see the two attentions' ``step``. [B·W, D] → [B·W, D]."""
        x = self.residual1(x, lambda y: self.self_attention.step(y, cache, entries, mask))
        x = self.residual2(x, lambda y: self.cross_attention.step(y, source, source_mask))
        return self.residual3(x, self.feed_forward)
