"""What decoding remembers between steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.model.attention import KeysValues

BLOCK = 64
"""Entries. Where several steps have to be alike, the pool grows by whole blocks, so that many are;
kernels like such numbers, too."""


@dataclass
class DecoderState:
    """What decoding remembers between steps, for B sentences with W beams each.

    The beams of a sentence mostly begin alike. So their keys and values lie in one pool of P
    entries a sentence, and a mask says which entries are whose. An entry is written once and never
    moved; once no beam has it any more, a new one takes its place.

    A step changes tensors in place and nothing else, so that it can be recorded and repeated.
    """

    position: Tensor
    """[] int64, target positions decoded so far, t."""
    cache: Tensor
    """[L, B, ≥ P, H·K + H·K'], each decoder layer's own keys and, beside them, its values; what is
    beyond P is room."""
    owned: Tensor
    """[B, W, ≥ P] bool, True for the t entries that are a beam's."""
    sources: list[KeysValues]
    """Each decoder layer's keys and values of the source, [B, H, S, K]: one copy for all beams."""
    source_mask: Tensor | None
    """[B, 1, 1, S], 0 for source tokens and −∞ for padding; None if there is none."""
    used: int = 0
    """P: no entry of any sentence is beyond."""
    length: int = 0
    """Positions that there is room for."""

    @torch.inference_mode()
    def reserve(self, steps: int) -> bool:
        """Makes room for so many more steps, which then need not look whether there is any.

        Returns:
            Whether buffers grew, so that a recorded step is void.
        """
        self.length += steps
        beams, room = self.owned.shape[1:]
        number = int(self.owned.any(1).sum(1).max()) + steps * beams
        if number <= self.used:
            return False
        if steps > 1:
            number = -(-number // BLOCK) * BLOCK
        if number > room:
            self._grow(number + number // 2)
        # Zeros: entries that a mask hides have the weight 0, and 0 times the NaN that memory may
        # hold is NaN.
        self.cache[:, :, self.used : number] = 0
        self.used = number
        return True

    def _grow(self, entries: int) -> None:
        layers, sentences, room, width = self.cache.shape
        bigger = self.cache.new_empty(layers, sentences, entries, width)
        bigger[:, :, : self.used] = self.cache[:, :, : self.used]
        self.cache = bigger
        self.owned = torch.nn.functional.pad(self.owned, (0, entries - room))

    def new_entries(self, beams: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Gives each of the first W' beams an entry for its newest position.

        Returns:
            Where in the cache, sentences [B, 1] and entries [B, W']; and which entries each beam
            has now, [B, 1, W', P], as 0 and −∞.
        """
        owned = self.owned[:, :, : self.used]
        entries = owned.any(1).byte().argsort(dim=1, stable=True)[:, :beams]  # the first free ones
        owned = owned[:, :beams]
        owned.scatter_(2, entries[:, :, None], True)
        self.position += 1
        mask = torch.zeros(owned.shape, dtype=self.cache.dtype, device=owned.device)
        sentences = torch.arange(len(entries), device=entries.device)[:, None]
        return (sentences, entries), mask.masked_fill_(~owned, -torch.inf)[:, None]

    @torch.inference_mode()
    def select(self, beams: Tensor) -> None:
        """Goes on, in each sentence, from some of its beams.

        Args:
            beams: [B, W] int64, the beams to go on from; may repeat.
        """
        owned = self.owned[:, :, : self.used]
        owned.copy_(owned.gather(1, beams[:, :, None].expand(owned.shape)))

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        """Goes on with some sentences alone; one that stays at its place costs nothing.

        Args:
            sentences: Their numbers so far, in the order that they have from now on.
        """
        kept, device = len(sentences), self.owned.device
        moves = [(old, new) for new, old in enumerate(sentences) if old != new]
        if moves:
            origins, places = torch.tensor(moves, device=device).T
            used = self.cache[:, :, : self.used]
            used[:, places] = used[:, origins]  # reads all before it writes
            rows = [self.owned, *(part for source in self.sources for part in source)]
            for part in rows if self.source_mask is None else [*rows, self.source_mask]:
                part[places] = part[origins]
        self.cache, self.owned = self.cache[:, :kept], self.owned[:kept]
        self.sources = [(keys[:kept], values[:kept]) for keys, values in self.sources]
        if self.source_mask is not None:
            self.source_mask = self.source_mask[:kept]
