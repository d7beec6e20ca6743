"""Schema of the config group ``model/``."""

from dataclasses import dataclass

from transformer_mt.config.checks import choice, require

_MAXIMA = {
    **dict.fromkeys(("d_model", "d_ff", "num_heads", "d_k", "d_v"), 10**5),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 1000),
    "max_positions": 10**7,
}
"""Upper limits: no matrix reaches 2⁶³ bytes, and no untrusted config takes long to instantiate."""


@dataclass(kw_only=True, frozen=True)
class ModelConfig:
    """Sizes and variants of the Transformer (§3); the defaults are the base model of the paper."""

    d_model: int = 512
    """Size of embeddings and layer outputs (§3.1); even."""
    d_ff: int = 2048
    """Inner size of the feed-forward networks (§3.3)."""
    num_heads: int = 8
    """Number of attention heads h (§3.2.2)."""
    num_encoder_layers: int = 6
    """Number of encoder layers N (§3.1)."""
    num_decoder_layers: int = 6
    """Number of decoder layers N (§3.1)."""
    d_k: int | None = None
    """Size of the queries and keys of a head (§3.2.2); null: d_model / num_heads."""
    d_v: int | None = None
    """Size of the values of a head (§3.2.2); null: d_model / num_heads."""
    dropout: float = 0.1
    """Probability P_drop (§5.4), on the output of each sub-layer and on the sums of embeddings and
    positional encodings."""
    norm: str = "post"
    """Layer normalisation: ``post``: LayerNorm(x + Sublayer(x)), as in the paper (§3.1); ``pre``:
    x + Sublayer(LayerNorm(x))."""
    positions: str = "sinusoidal"
    """Positional encoding: ``sinusoidal`` (§3.5) or ``learned`` (Table 3, row E)."""
    max_positions: int = 1024
    """Maximum number of learned positions; sinusoids have no limit."""

    def __post_init__(self) -> None:
        for key, maximum in _MAXIMA.items():
            value = getattr(self, key)
            message = f"model.{key}={value} must be 1 to {maximum:,}"
            require(value is None or 1 <= value <= maximum, message)
        require(
            self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even (sines and cosines)"
        )
        for key in ("d_k", "d_v"):
            value = getattr(self, key)
            require(
                value is not None or self.d_model % self.num_heads == 0,
                f"model.d_model={self.d_model} is not a multiple of "
                f"model.num_heads={self.num_heads}: change one, or set model.{key}",
            )
        require(0 <= self.dropout < 1, f"model.dropout={self.dropout} must be in [0, 1)")
        choice("model.norm", self.norm, "post", "pre")
        choice("model.positions", self.positions, "sinusoidal", "learned")

    @property
    def key_size(self) -> int:
        """Size of the queries and keys of a head, d_k."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of the values of a head, d_v."""
        return self.d_v or self.d_model // self.num_heads
