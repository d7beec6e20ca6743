"""Schema of the config group ``model/``."""

from dataclasses import dataclass

from transformer_mt.config.checks import Checked, number, one_of, require


@dataclass(kw_only=True, frozen=True)
class ModelConfig(Checked):
    """Sizes and variants of the Transformer (§3); the defaults are the base model of the paper."""

    _prefix = "model."
    d_model: int = number(512, at_least=1)
    """Size of embeddings and layer outputs (§3.1); even."""
    d_ff: int = number(2048, at_least=1)
    """Inner size of the feed-forward networks (§3.3)."""
    num_heads: int = number(8, at_least=1)
    """Number of attention heads h (§3.2.2)."""
    num_encoder_layers: int = number(6, at_least=1)
    """Number of encoder layers N (§3.1)."""
    num_decoder_layers: int = number(6, at_least=1)
    """Number of decoder layers N (§3.1)."""
    d_k: int | None = number(None, at_least=1)
    """Size of the queries and keys of a head (§3.2.2); null: d_model / num_heads."""
    d_v: int | None = number(None, at_least=1)
    """Size of the values of a head (§3.2.2); null: d_model / num_heads."""
    dropout: float = number(0.1, at_least=0, below=1)
    """Dropout probability P_drop (§5.4) on the output of each sub-layer and on the sums of
    embeddings and positional encodings."""
    attention_dropout: float = number(0.0, at_least=0, below=1)
    """Dropout probability on the attention weights (§3.2.1), after the softmax. 0 in the paper's
    base model, 0.1 in the authors' later one (``experiment=base_v2``)."""
    activation_dropout: float = number(0.0, at_least=0, below=1)
    """Dropout probability in the feed-forward networks (§3.3), after the activation. 0 in the
    paper's base model, 0.1 in the authors' later one."""
    attention_bias: bool = False
    """Add a bias to the four projections of attention (§3.2.2), as in MarianMT."""
    activation: str = one_of("relu", "swish", "gelu")
    """Activation of the feed-forward networks (§3.3); the paper's is ReLU. ``gelu`` is x Φ(x), not
    an approximation."""
    norm: str = one_of("post", "pre")
    """Normalise after each sub-layer, as in the paper (§3.1), or before it, which needs fewer
    updates. ``post``: LayerNorm(x + Sublayer(x)); ``pre``: x + Sublayer(LayerNorm(x)), with the
    initial output weights of the sub-layers of N layers times 1/√(2N) (Radford et al. 2019)."""
    layer_norm_eps: float = number(1e-6, above=0, at_most=1)
    """ε of layer normalisation, (x − μ) / √(σ² + ε); 1e-5 in MarianMT."""
    tied_embeddings: str = one_of("all", "decoder", "none")
    """Share one matrix between both embeddings and the output layer (all, §3.4), between target
    embeddings and output layer (decoder), or none. ``all`` needs one vocabulary for both
    languages."""
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model (§3.4)."""
    output_bias: bool = False
    """Add a bias to the output layer, as in MarianMT."""
    positions: str = one_of("sinusoidal", "learned")
    """Add the paper's sinusoids to the embeddings (§3.5), or learn the positional encodings (Table
    3, row E)."""
    max_positions: int = number(1024, at_least=1)
    """Longest sentence with learned positions, in subwords; sinusoids have no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
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

    @property
    def key_size(self) -> int:
        """Size of the queries and keys of a head, d_k."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of the values of a head, d_v."""
        return self.d_v or self.d_model // self.num_heads
