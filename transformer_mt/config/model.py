"""Schema of ``model/``."""

from dataclasses import dataclass

from transformer_mt.config.checks import choice, require


@dataclass(kw_only=True, frozen=True)
class ModelConfig:
    """The Transformer (§3); the defaults are the paper's base model."""

    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_k: int | None = None
    """Size of a head's queries and keys; null is d_model / num_heads."""
    d_v: int | None = None
    """Size of a head's values; null is d_model / num_heads."""
    dropout: float = 0.1
    """P_drop (§5.4): on every sub-layer's output and on the sums of embeddings and positions."""
    norm: str = "post"
    """``post``: LayerNorm(x + Sublayer(x)), the paper's; ``pre``: x + Sublayer(LayerNorm(x))."""
    positions: str = "sinusoidal"
    """``sinusoidal`` (§3.5) or ``learned`` (Table 3, row E)."""
    max_positions: int = 1024
    """Number of learned positions; sinusoids have no limit."""

    def __post_init__(self) -> None:
        for key in ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"):
            require(getattr(self, key) >= 1, f"model.{key}={getattr(self, key)} must be ≥ 1")
        require(
            self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even (sines and cosines)"
        )
        for key in ("d_k", "d_v"):
            value = getattr(self, key)
            require(
                value is not None or self.d_model % self.num_heads == 0,
                f"model.d_model={self.d_model} is no multiple of model.num_heads={self.num_heads}; "
                f"change one, or set model.{key}",
            )
            require(value is None or value >= 1, f"model.{key}={value} must be ≥ 1")
        require(0 <= self.dropout < 1, f"model.dropout={self.dropout} must be in [0, 1)")
        choice("model.norm", self.norm, "post", "pre")
        choice("model.positions", self.positions, "sinusoidal", "learned")
        require(self.max_positions >= 1, "model.max_positions must be ≥ 1")

    @property
    def key_size(self) -> int:
        """Size of a head's queries and keys, d_k."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of a head's values, d_v."""
        return self.d_v or self.d_model // self.num_heads
