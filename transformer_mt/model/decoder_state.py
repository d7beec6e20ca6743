"""What decoding remembers between steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.model.attention import KeysValues


@dataclass
class DecoderState:
    """What decoding remembers between steps, for B sentences with W beams each.

    The beams of a sentence mostly begin alike. So their keys and values lie in one pool of P
    entries a sentence, and a mask says which entries are whose. An entry is written once and never
    moved; once no beam has it any more, a new one takes its place.
    """

    position: int
    """Target positions decoded so far, t."""
    cache: Tensor
    """[L, ≥ B, ≥ P, H·K + H·K'], each decoder layer's own keys and, beside them, its values; what
    is beyond B and P is room."""
    owned: Tensor
    """[B, W, ≥ P] bool, True for the t entries that are a beam's."""
    used: int
    """P: no entry of any sentence is beyond."""
    sources: list[KeysValues]
    """Each decoder layer's keys and values of the source, [B, H, S, K]: one copy for all beams."""
    source_mask: Tensor | None
    """[B, 1, 1, S], 0 for source tokens and −∞ for padding; None if there is none."""

    def new_entries(self, beams: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Gives each of W beams an entry for its newest position.

        Returns:
            Where in the cache, sentences [B, 1] and entries [B, W]; and which entries each beam
            has now, [B, 1, W, P], as 0 and −∞.
        """
        if self.position == 0:
            self.owned = self.owned.expand(-1, beams, -1).clone()
        taken = self.owned.any(1)  # [B, ≥ P]
        number = int(taken.sum(1).max()) + beams
        if number > taken.shape[1]:
            self._reserve(number + number // 2)
            taken = self.owned.any(1)
        if number > self.used:
            # Numbers, not what memory happens to hold: they are multiplied, if only by 0.
            self.cache[:, :, self.used : number] = 0
            self.used = number
        # The first that are free: all within that number.
        entries = taken[:, :number].byte().argsort(dim=1, stable=True)[:, :beams]
        self.owned.scatter_(2, entries[:, :, None], True)
        self.position += 1
        owned = self.owned[:, None, :, : self.used]
        mask = torch.zeros(owned.shape, dtype=self.cache.dtype, device=owned.device)
        sentences = torch.arange(len(entries), device=entries.device)[:, None]
        return (sentences, entries), mask.masked_fill_(~owned, -torch.inf)

    def _reserve(self, entries: int) -> None:
        layers, sentences, room, width = self.cache.shape
        bigger = self.cache.new_empty(layers, sentences, entries, width)
        bigger[:, :, : self.used] = self.cache[:, :, : self.used]
        self.cache = bigger
        self.owned = torch.nn.functional.pad(self.owned, (0, entries - room))

    @torch.inference_mode()
    def select(self, sentences: Tensor | None, beams: Tensor) -> None:
        """Goes on with some sentences, and in each with some of its beams.

        Beams cost nothing, nor does a sentence that stays at its place.

        Args:
            sentences: [B'] int64, the sentences kept; None keeps all.
            beams: [B', W'] int64, for each the beams to go on from; may repeat.
        """
        if sentences is not None:
            kept = len(sentences)
            here = torch.arange(kept, device=sentences.device)
            moved = (sentences != here).nonzero().flatten()
            origins = sentences[moved]
            used = self.cache[:, :, : self.used]
            used[:, moved] = used[:, origins]  # reads all before it writes
            for part in (part for source in self.sources for part in source):
                part[moved] = part[origins]
            self.sources = [(keys[:kept], values[:kept]) for keys, values in self.sources]
            if self.source_mask is not None:
                self.source_mask = self.source_mask[sentences]
            self.owned = self.owned[sentences]
        index = beams[:, :, None].expand(-1, -1, self.owned.shape[2])
        self.owned = self.owned.gather(1, index)
