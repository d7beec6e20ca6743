"""The whole model: encode, decode, and decode one step at a time (§3.1)."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from transformer_mt.batch import Batch, Buckets, Packed
from transformer_mt.config import ModelConfig
from transformer_mt.model.attention import SourceProjection, pad, split_heads
from transformer_mt.model.decoder_state import BLOCK, DecoderState
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
        return self.embedding.logits(hidden)

    def forward(self, batch: Batch) -> Tensor:
        """Decoder outputs at every target position: [N, D]."""
        return self.decode(batch.tgt_in, self.encode(batch.src), batch.src)

    @torch.inference_mode()
    def start(self, src: Packed, beam_size: int) -> DecoderState:
        """Encodes sentences, one group of them, and opens a search with W beams for each."""
        assert isinstance(src.layout, Buckets)
        (bucket,) = src.layout.buckets
        heads, memory = self.config.num_heads, self.encode(src)
        sources = [
            # Every step reads them: head by head, without gaps.
            (
                split_heads(pad(k.to(memory.dtype), bucket), heads).contiguous(),
                split_heads(pad(v.to(memory.dtype), bucket), heads).contiguous(),
            )
            for k, v in self.source_projection(memory)
        ]
        mask = None
        if bucket.mask is not None:
            padding = ~bucket.mask[:, None, None, :]
            # On a GPU attention would copy a mask whose rows are not of whole eights, each time.
            rows = memory.new_zeros(bucket.num_sequences, 1, 1, -(-bucket.max_length // 8) * 8)
            mask = rows[..., : bucket.max_length].masked_fill_(padding, -torch.inf)
        # Most translations are about as long as their sources, and beams differ in the last tokens.
        room = max(bucket.max_length + 4 * beam_size, BLOCK)
        width = heads * (self.config.key_size + self.config.value_size)
        shape = (bucket.num_sequences, beam_size, room)
        return DecoderState(
            position=torch.zeros((), dtype=torch.int64, device=memory.device),
            cache=memory.new_empty(len(self.decoder), bucket.num_sequences, room, width),
            owned=torch.zeros(shape, dtype=torch.bool, device=memory.device),
            sources=sources,
            source_mask=mask,
        )

    @torch.inference_mode()
    def decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Logits of the next token, given the newest one of each beam.

        Args:
            tokens: [B, W'] int64, of the first W' of the W beams.
            state: Of the positions before, with room for one more; it moves on by one.

        Returns:
            [B, W', V].
        """
        rows = tokens.flatten()
        x = self.embedding(rows, state.position.expand(len(rows)), state.length)
        entries, mask = state.new_entries(tokens.shape[1])
        caches = state.cache[:, :, : state.used]
        for layer, cache, source in zip(self._decoder_layers(), caches, state.sources, strict=True):
            x = layer.step(x, cache, entries, mask, source, state.source_mask)
        return self.logits(self.decoder_norm(x)).view(*tokens.shape, -1)

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        return (layer for layer in self.decoder if isinstance(layer, DecoderLayer))


def _init_linear(linear: nn.Linear) -> None:
    # The paper does not say. Its authors' code draws U(±√(3 / fan-in)): unit gain.
    bound = math.sqrt(3 / linear.in_features)
    nn.init.uniform_(linear.weight, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
