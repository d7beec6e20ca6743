"""Key/value caches and beam state of incremental decoding.

Shapes: B sentences, W beams, L decoder layers, H heads, K, K' sizes of a head's keys and values,
S source length, P cache slots of a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.model.layers import KeyValue

BLOCK = 64
"""Number of cache slots in a block. P grows by whole blocks, so that most steps have the shapes
of the step before; kernels are also faster with such sizes."""


@dataclass
class DecoderState:
    """Key/value caches of a search over B sentences with W beams each.

    The beams of a sentence share most of their prefix, so their keys and values lie in one pool of
    P slots per sentence, and a mask says which slots belong to which beam. A slot is written once
    and never moved; it is free again when no beam uses it.

    A decoding step changes tensors in place and nothing else, so that a CUDA graph can capture it.
    """

    position: Tensor
    """[] int64, number of target positions decoded so far, t."""
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
    length: int = 0
    """Maximum target length that there is room for."""

    @torch.inference_mode()
    def reserve(self, steps: int) -> bool:
        """Makes room for ``steps`` more steps; returns whether shapes or buffers changed, which
        invalidates a captured step.
        """
        self.length += steps
        beams, capacity = self.beam_mask.shape[1:]
        number = int(self.beam_mask.any(1).sum(1).max()) + steps * beams
        if number <= self.used:
            return False
        if steps > 1:
            number = -(-number // BLOCK) * BLOCK
        if number > capacity:
            layers, sentences, _, width = self.cache.shape
            cache = self.cache.new_empty(layers, sentences, number + number // 2, width)
            cache[:, :, : self.used] = self.cache[:, :, : self.used]
            self.cache = cache
            self.beam_mask = F.pad(self.beam_mask, (0, cache.shape[2] - capacity))
        # Zeros: masked slots have weight 0, and 0 times the NaN of uninitialised memory is NaN.
        self.cache[:, :, self.used : number] = 0
        self.used = number
        return True

    def allocate(self, beams: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Allocates a cache slot for the newest position of each of the first W' beams.

        Returns:
            Indices of the slots in the cache, sentences [B, 1] and slots [B, W'], and the additive
            attention mask [B, 1, W', P]: 0 for the slots of a beam, −∞ for all others.
        """
        beam_mask = self.beam_mask[:, :, : self.used]
        slots = beam_mask.any(1).byte().argsort(dim=1, stable=True)[:, :beams]  # first free ones
        beam_mask = beam_mask[:, :beams]
        beam_mask.scatter_(2, slots[:, :, None], True)
        self.position += 1
        mask = torch.zeros(beam_mask.shape, dtype=self.cache.dtype, device=beam_mask.device)
        sentences = torch.arange(len(slots), device=slots.device)[:, None]
        return (sentences, slots), mask.masked_fill_(~beam_mask, -torch.inf)[:, None]

    @torch.inference_mode()
    def select(self, beams: Tensor) -> None:
        """Reorders the beams of each sentence; ``beams`` [B, W] int64 are their old indices."""
        beam_mask = self.beam_mask[:, :, : self.used]
        beam_mask.copy_(beam_mask.gather(1, beams[:, :, None].expand(beam_mask.shape)))

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
