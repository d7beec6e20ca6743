"""The Transformer (§3.1): encoder, decoder, and incremental decoding.

Shapes: N, M packed target and source tokens; D model; V vocabulary; B sentences; W beams.
"""

import copy
import math

import torch
from torch import Tensor, nn

from transformer_mt.batch import Batch, Buckets, Packed
from transformer_mt.config import ModelConfig
from transformer_mt.kernels.packed_attention import pad_heads
from transformer_mt.kernels.products import PackedLinear
from transformer_mt.model.decoder_state import BLOCK, DecoderState
from transformer_mt.model.embedding import Embedding
from transformer_mt.model.layers import CrossKVProjection, DecoderLayer, Dropout, EncoderLayer


class Transformer(nn.Module):
    """The Transformer of "Attention Is All You Need".

    Args:
        config: Sizes and variants.
        vocab_size: Number of pieces V of the target.
        src_vocab_size: Number of pieces of the source; None: one vocabulary for both.
    """

    packed_output: PackedLinear | None = None
    """The output layer of ``for_inference`` on a CPU."""

    def __init__(self, config: ModelConfig, vocab_size: int, src_vocab_size: int | None = None):
        super().__init__()
        self.config = config
        # "We share the same weight matrix between the two embedding layers and the pre-softmax
        # linear transformation" (§3.4), unless ``tied_embeddings`` says otherwise.
        self.embedding = Embedding(vocab_size, config)
        self.untied_source: Embedding | None = None
        self.untied_output: nn.Parameter | None = None
        if config.tied_embeddings != "all":
            self.untied_source = Embedding(src_vocab_size or vocab_size, config)
        if config.tied_embeddings == "none":
            self.untied_output = nn.Parameter(torch.empty_like(self.embedding.weight))
            if not self.untied_output.is_meta:
                nn.init.normal_(self.untied_output, std=config.d_model**-0.5)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.source_projection = CrossKVProjection(config)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Only pre-norm needs a final norm: a post-norm layer ends in one.
        pre, norm = config.norm == "pre", (config.d_model, config.layer_norm_eps)
        self.encoder_norm = nn.LayerNorm(*norm) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(*norm) if pre else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                # As in the authors' code, since the paper gives none: U(±√(3 / fan-in)), unit gain.
                bound = math.sqrt(3 / module.in_features)
                nn.init.uniform_(module.weight, -bound, bound)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if pre:
            # The residual stream is a sum that nothing normalises: the outputs of sub-layers begin
            # smaller by 1 / √(2 · layers), as in GPT-2 (Radford et al. 2019, §2.3).
            for stack in (self.encoder, self.decoder):
                for name, weight in stack.named_parameters():
                    if name.endswith(("out_proj.weight", "linear2.weight")):
                        weight.data.mul_((2 * len(stack)) ** -0.5)

    @property
    def vocab_size(self) -> int:
        """Number of pieces of the target, V."""
        return self.embedding.weight.shape[0]

    @property
    def src_vocab_size(self) -> int:
        """Number of pieces of the source."""
        return self.source_embedding.weight.shape[0]

    @property
    def source_embedding(self) -> Embedding:
        """Embedding of the source."""
        return self.embedding if self.untied_source is None else self.untied_source

    @property
    def output_weight(self) -> Tensor:
        """Matrix of the output layer, [V, D]."""
        return self.embedding.weight if self.untied_output is None else self.untied_output

    def encode(self, src: Packed) -> Tensor:
        """Encoder output, the memory of the decoder: [M, D]."""
        max_length = src.boundaries.max_length
        x = self.dropout(self.source_embedding(src.tokens, src.positions, max_length))
        for layer in self.encoder:
            x = layer(x, src.boundaries)
        return self.encoder_norm(x)

    def decode(self, tgt_in: Packed, memory: Tensor, src: Packed) -> Tensor:
        """Decoder output for whole target sequences (teacher forcing): [N, D]."""
        max_length = tgt_in.boundaries.max_length
        x = self.dropout(self.embedding(tgt_in.tokens, tgt_in.positions, max_length))
        for layer, cross_kv in zip(self.decoder, self.source_projection(memory), strict=True):
            x = layer(x, tgt_in.boundaries, cross_kv, src.boundaries)
        return self.decoder_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Output layer before the softmax (§3.4): [N, D] → [N, V]."""
        if self.packed_output is not None:
            return self.packed_output(hidden)
        weight, bias = self.output_weight, self.output_bias
        if weight.device.type == "cuda" and weight.itemsize < 4:
            # In fp32: bf16 would round a logit of 10 to a multiple of 0.06.
            logits = torch.mm(hidden, weight.detach().T, out_dtype=torch.float32)
            return logits if bias is None else logits.add_(bias)
        return nn.functional.linear(hidden, weight, bias)

    def forward(self, batch: Batch) -> Tensor:
        """Decoder output at each target position: [N, D]."""
        return self.decode(batch.tgt_in, self.encode(batch.src), batch.src)

    @torch.inference_mode()
    def init_decoder_state(self, src: Packed, beam_size: int) -> DecoderState:
        """Encodes sentences and creates the state for decoding each of them with W beams.

        Args:
            src: B source sentences, packed as one bucket.
            beam_size: W.
        """
        boundaries = src.boundaries
        assert isinstance(boundaries, Buckets)
        (bucket,) = boundaries.buckets
        heads, memory = self.config.num_heads, self.encode(src)
        cross_kv = []
        for keys, values in self.source_projection(memory):
            (k,) = pad_heads(keys.to(memory.dtype), boundaries, heads)
            (v,) = pad_heads(values.to(memory.dtype), boundaries, heads)
            cross_kv.append((k.contiguous(), v.contiguous()))  # read in each step
        mask = None
        if bucket.mask is not None:
            padding = ~bucket.mask[:, None, None, :]
            # A GPU kernel copies a mask whose row stride is not a multiple of 8, each time.
            rows = memory.new_zeros(bucket.num_sequences, 1, 1, -(-bucket.max_length // 8) * 8)
            mask = rows[..., : bucket.max_length].masked_fill_(padding, -torch.inf)
        # Translations are about as long as their sources, and beams differ in their last tokens.
        capacity = max(bucket.max_length + 4 * beam_size, BLOCK)
        width = heads * (self.config.key_size + self.config.value_size)
        shape = (bucket.num_sequences, beam_size, capacity)
        return DecoderState(
            position=torch.zeros((), dtype=torch.int64, device=memory.device),
            cache=memory.new_empty(len(self.decoder), bucket.num_sequences, capacity, width),
            beam_mask=torch.zeros(shape, dtype=torch.bool, device=memory.device),
            cross_kv=cross_kv,
            source_mask=mask,
        )

    @torch.inference_mode()
    def decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Logits of the next token of each beam; advances the state by one position.

        Args:
            tokens: [B, W'] int64, newest token of the first W' of the W beams.
            state: State with room for one more position (``DecoderState.reserve``).

        Returns:
            [B, W', V].
        """
        rows = tokens.flatten()
        x = self.embedding(rows, state.position.expand(len(rows)), state.length)
        slots, mask = state.allocate(tokens.shape[1])
        caches = state.cache[:, :, : state.used]
        for layer, cache, cross_kv in zip(self.decoder, caches, state.cross_kv, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(x, cache, slots, mask, cross_kv, state.source_mask)
        return self.logits(self.decoder_norm(x)).view(*tokens.shape, -1)


def for_inference(model: Transformer, dtype: torch.dtype = torch.float32) -> Transformer:
    """The model for decoding only: a copy, or itself if none is needed.

    Args:
        model: In ``eval`` mode. Do not change its weights afterwards: the copy may share them.
        dtype: Type of all computation on a GPU; on a CPU, of matrix products and attention.
    """
    if model.embedding.weight.device.type != "cpu":
        if model.embedding.weight.dtype == dtype:
            return model
        return copy.deepcopy(model).to(dtype)
    if model.embedding.weight.dtype != torch.float32:
        return model
    # The memo makes the copy share the parameters.
    packed = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, PackedLinear(child.weight, child.bias, dtype))
    packed.packed_output = PackedLinear(packed.output_weight, packed.output_bias, dtype)
    return packed
