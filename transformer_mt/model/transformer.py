"""The Transformer (§3.1): encoder, decoder, and incremental decoding.

Shapes: N, M packed target and source tokens; D model; V vocabulary; B sentences; W beams; S source
length; H heads; K, K' sizes of a head's keys and values; L decoder layers; P cache slots of a
sentence.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.batch import Batch, Buckets, Packed
from transformer_mt.config import ModelConfig
from transformer_mt.kernels.packed_attention import pad_heads
from transformer_mt.kernels.products import Linear, PackedLinear
from transformer_mt.model.layers import (
    CrossKVProjection,
    DecoderLayer,
    Dropout,
    Embedding,
    EncoderLayer,
    KeyValue,
)


class Transformer(nn.Module):
    """The Transformer of "Attention Is All You Need".

    Args:
        config: Sizes and variants.
        vocab_size: Number of pieces V of the target.
        src_vocab_size: Number of pieces of the source; None: one vocabulary for both.

    Attributes:
        vocab_size: V.
        src_vocab_size: Number of pieces of the source.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, src_vocab_size: int | None = None):
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
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
        self.src_vocab_size = len(self.source_embedding.weight)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.packed_output: PackedLinear | None = None
        """The output layer of ``for_inference`` on a CPU."""
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.source_projection = CrossKVProjection(config)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Only pre-norm needs a final norm: a post-norm layer ends in one.
        pre, norm = config.norm == "pre", (config.d_model, config.layer_norm_eps)
        self.encoder_norm = nn.LayerNorm(*norm) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(*norm) if pre else nn.Identity()
        if pre:
            # The residual stream is a sum that nothing normalises: the outputs of sub-layers begin
            # smaller by 1 / √(2 · layers), as in GPT-2 (Radford et al. 2019, §2.3).
            for stack in (self.encoder, self.decoder):
                for name, weight in stack.named_parameters():
                    if name.endswith(("out_proj.weight", "linear2.weight")):
                        weight.data.mul_((2 * len(stack)) ** -0.5)

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
    def init_decoder_state(self, src: Packed, beam_size: int) -> "DecoderState":
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
        capacity = bucket.max_length + 4 * beam_size
        width = heads * (self.config.key_size + self.config.value_size)
        shape = (bucket.num_sequences, beam_size, capacity)
        return DecoderState(
            cache=memory.new_empty(len(self.decoder), bucket.num_sequences, capacity, width),
            beam_mask=torch.zeros(shape, dtype=torch.bool, device=memory.device),
            cross_kv=cross_kv,
            source_mask=mask,
        )

    @torch.inference_mode()
    def decode_step(self, tokens: Tensor, parents: Tensor, state: "DecoderState") -> Tensor:
        """Logits of the next token of each beam; advances the state by one position.

        Args:
            tokens: [B, W'] int64, newest token of the first W' of the W beams.
            parents: [B, W'] int64, the beam of the previous step that each of them continues.
            state: The state of these sentences.

        Returns:
            [B, W', V].
        """
        rows = tokens.flatten()
        position = torch.full_like(rows, state.position)
        x = self.embedding(rows, position, state.position + 1)
        slots, mask = state.allocate(parents)
        caches = state.cache[:, :, : state.used]
        for layer, cache, cross_kv in zip(self.decoder, caches, state.cross_kv, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(x, cache, slots, mask, cross_kv, state.source_mask)
        return self.logits(self.decoder_norm(x)).view(*tokens.shape, -1)


@dataclass
class DecoderState:
    """Key/value caches of a search over B sentences with W beams each.

    The beams of a sentence share most of their prefix, so their keys and values lie in one pool of
    P slots per sentence, and a mask says which slots belong to which beam. A slot is written once
    and never moved; it is free again when no beam uses it.
    """

    cache: Tensor
    """[L, B, ≥ P, H·K + H·K'] self-attention keys and values of each layer; P slots are in use."""
    beam_mask: Tensor
    """[B, W, ≥ P] bool, True for the t slots that belong to a beam."""
    cross_kv: list[KeyValue]
    """Cross-attention keys [B, H, S, K] and values [B, H, S, K'] of each layer, shared by all beams
    of a sentence."""
    source_mask: Tensor | None
    """[B, 1, 1, S], 0 for source tokens and −∞ for padding; None without padding."""
    used: int = 0
    """Number of cache slots in use, P."""
    position: int = 0
    """Number of target positions decoded so far, t."""

    def allocate(self, parents: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Lets the first W' beams take over their parents' cache slots, and adds one for each.

        Args:
            parents: [B, W'] int64, the beam of the previous step that each of them continues.

        Returns:
            Indices of the slots in the cache, sentences [B, 1] and slots [B, W'], and the additive
            attention mask [B, 1, W', P]: 0 for the slots of a beam, −∞ for all others.
        """
        beams = parents.shape[1]
        beam_mask = self.beam_mask[:, :, : self.used]
        inherited = beam_mask.gather(1, parents[:, :, None].expand(-1, -1, self.used))
        beam_mask[:, :beams] = inherited
        self._make_room()
        beam_mask = self.beam_mask[:, :, : self.used]
        slots = beam_mask.any(1).byte().argsort(dim=1, stable=True)[:, :beams]  # first free ones
        beam_mask = beam_mask[:, :beams]
        beam_mask.scatter_(2, slots[:, :, None], True)
        self.position += 1
        mask = torch.zeros(beam_mask.shape, dtype=self.cache.dtype, device=beam_mask.device)
        sentences = torch.arange(len(slots), device=slots.device)[:, None]
        return (sentences, slots), mask.masked_fill_(~beam_mask, -torch.inf)[:, None]

    def _make_room(self) -> None:
        """Grows the cache to have a free slot for each beam."""
        number_of_beams, capacity = self.beam_mask.shape[1:]
        number = int(self.beam_mask.any(1).sum(1).max()) + number_of_beams
        if number > capacity:
            layers, sentences, _, width = self.cache.shape
            cache = self.cache.new_empty(layers, sentences, number + number // 2, width)
            cache[:, :, : self.used] = self.cache[:, :, : self.used]
            self.cache = cache
            self.beam_mask = F.pad(self.beam_mask, (0, cache.shape[2] - capacity))
        if number > self.used:
            # Zeros: masked slots have weight 0, and 0 times the NaN of uninitialised memory is NaN.
            self.cache[:, :, self.used : number] = 0
            self.used = number

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        """Reduces the batch to the given sentences, in this order; unmoved ones cost nothing."""
        kept, device = len(sentences), self.beam_mask.device
        moves = [(old, new) for new, old in enumerate(sentences) if old != new]
        if moves:
            old, new = torch.tensor(moves, device=device).T
            cache = self.cache[:, :, : self.used]
            cache[:, new] = cache[:, old]  # reads all before it writes
            rows = [self.beam_mask, *(part for kv in self.cross_kv for part in kv)]
            for part in rows if self.source_mask is None else [*rows, self.source_mask]:
                part[new] = part[old]
        self.cache, self.beam_mask = self.cache[:, :kept], self.beam_mask[:kept]
        self.cross_kv = [(keys[:kept], values[:kept]) for keys, values in self.cross_kv]
        if self.source_mask is not None:
            self.source_mask = self.source_mask[:kept]


def for_inference(model: Transformer, dtype: torch.dtype = torch.float32) -> Transformer:
    """The model for decoding only: a copy, or itself if none is needed.

    Args:
        model: In ``eval`` mode. Do not change its weights afterwards: the copy may share them.
        dtype: Type of all computation on a GPU; on a CPU, of large matrix products. Logits are in
            fp32.
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
            hooked = child._forward_hooks or child._forward_pre_hooks
            if type(child) is Linear and not hooked:  # an adapter, for example, is a subclass
                setattr(parent, name, PackedLinear(child.weight, child.bias, dtype))
    output = packed.output_weight, packed.output_bias
    packed.packed_output = PackedLinear(*output, torch.float32)  # as on a GPU, see ``logits``
    return packed
