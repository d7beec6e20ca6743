"""The whole model: encode, decode, and decode one step at a time (§3.1)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.config import ModelConfig
from transformer_mt.data.batching import Batch
from transformer_mt.data.packed import Buckets, Packed
from transformer_mt.model.attention import KeysValues, SourceProjection, pad, split_heads
from transformer_mt.model.embedding import Embedding
from transformer_mt.model.layers import LAYER_NORM_EPS, DecoderLayer, Dropout, EncoderLayer


class Transformer(nn.Module):
    """The Transformer of "Attention Is All You Need".

    Shapes: N flat target tokens, M flat source tokens, D model, V vocabulary, B sentences, W beams.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocab_size, config)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.source_projection = SourceProjection(config)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Post-norm layers end in a norm already; the paper adds none after the stacks.
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model, LAYER_NORM_EPS) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model, LAYER_NORM_EPS) if pre else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                _init_linear(module)

    @property
    def vocab_size(self) -> int:
        """Number of rows of the shared embedding matrix."""
        return self.embedding.weight.shape[0]

    def embed(self, packed: Packed) -> Tensor:
        """Embeddings plus positions, with dropout (§5.4): [N, D]."""
        longest = packed.layout.max_length
        return self.dropout(self.embedding(packed.tokens, packed.positions, longest))

    def encode(self, src: Packed) -> Tensor:
        """The encoder stack: [M, D]."""
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, src.layout)
        return self.encoder_norm(x)

    def decode(self, tgt_in: Packed, memory: Tensor, src: Packed) -> Tensor:
        """The decoder stack over whole target sequences: [N, D]."""
        x = self.embed(tgt_in)
        for layer, source in zip(self.decoder, self.source_projection(memory), strict=True):
            x = layer(x, tgt_in.layout, source, src.layout)
        return self.decoder_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """The pre-softmax linear transformation, tied to the embeddings (§3.4): [N, D] → [N, V]."""
        return nn.functional.linear(hidden, self.embedding.weight)

    def forward(self, batch: Batch) -> Tensor:
        """Decoder outputs at every target position: [N, D]."""
        return self.decode(batch.tgt_in, self.encode(batch.src), batch.src)

    def start(self, src: Packed, beam_size: int) -> "DecoderState":
        """Encodes sentences, one group of them, and opens a search over them."""
        assert isinstance(src.layout, Buckets)
        (group,) = src.layout.groups
        memory = self.encode(src)
        rows = group.size * beam_size
        config = self.config
        empty = (
            memory.new_empty(rows, config.num_heads, 0, config.key_size),
            memory.new_empty(rows, config.num_heads, 0, config.value_size),
        )
        sources = [
            (
                split_heads(pad(k, group), config.num_heads),
                split_heads(pad(v, group), config.num_heads),
            )
            for k, v in self.source_projection(memory)
        ]
        return DecoderState(
            position=0,
            caches=[empty for _ in sources],
            sources=sources,
            source_mask=None if group.mask is None else group.mask[:, None, None, :],
        )

    def decode_step(self, tokens: Tensor, state: "DecoderState") -> Tensor:
        """Logits of the next token, given the newest one of each beam.

        Args:
            tokens: [B, W] int64.
            state: Of the positions before; it moves on by one.

        Returns:
            [B, W, V].
        """
        rows = tokens.flatten()
        positions = torch.full_like(rows, state.position)
        x = self.dropout(self.embedding(rows, positions, state.position + 1))
        for i, layer in enumerate(self._decoder_layers()):
            x, state.caches[i] = layer.step(x, state.caches[i], state.sources[i], state.source_mask)
        state.position += 1
        return self.logits(self.decoder_norm(x)).view(*tokens.shape, -1)

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        return (layer for layer in self.decoder if isinstance(layer, DecoderLayer))


@dataclass
class DecoderState:
    """What decoding remembers between steps, for B sentences with W beams each."""

    position: int
    """Target positions decoded so far, t."""
    caches: list[KeysValues]
    """Each decoder layer's own keys and values, [B·W, H, t, K]."""
    sources: list[KeysValues]
    """Each decoder layer's keys and values of the source, [B, H, S, K]: one copy for all beams."""
    source_mask: Tensor | None
    """[B, 1, 1, S] bool, True for source tokens."""

    def select(self, sentences: Tensor | None, beams: Tensor) -> None:
        """Goes on with some sentences, and in each with some of its beams.

        Args:
            sentences: [B'] int64, the sentences kept; None keeps all.
            beams: [B', W'] int64, for each the beams to go on from; may repeat.
        """
        width = self.caches[0][0].shape[0] // self.sources[0][0].shape[0]
        first = torch.arange(len(beams), device=beams.device) if sentences is None else sentences
        rows = (first[:, None] * width + beams).flatten()
        self.caches = [(k[rows], v[rows]) for k, v in self.caches]
        if sentences is not None:
            self.sources = [(k[sentences], v[sentences]) for k, v in self.sources]
            if self.source_mask is not None:
                self.source_mask = self.source_mask[sentences]


def _init_linear(linear: nn.Linear) -> None:
    # The paper does not say. Its authors' code draws U(±√(3 / fan-in)): unit gain.
    bound = math.sqrt(3 / linear.in_features)
    nn.init.uniform_(linear.weight, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
