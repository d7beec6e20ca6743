"""Sequences of different lengths as one flat row of tokens, without padding.

Everything that treats tokens one by one (embeddings, projections, feed-forward layers, the loss)
works on ``[N, D]``, N tokens end to end, and never multiplies padding. Only attention asks where
sequences begin: it takes the flat rows of one *group* of sequences of similar length, pads those,
and gives flat rows back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TokenArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Group:
    """A stretch of the flat row: ``size`` sequences of at most ``length`` tokens each."""

    start: int
    stop: int
    """The group is rows ``start:stop`` of the flat tensors."""
    size: int
    length: int
    rows: Tensor | None
    """[stop - start] int64: where each token sits in the padded ``[size · length]`` rows; None if
    every sequence has ``length`` tokens, so that padding is a mere change of shape."""
    mask: Tensor | None
    """[size, length] bool: True for tokens, False for padding; None if there is no padding."""


@dataclass(frozen=True)
class Packed:
    """A batch of token sequences laid end to end."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token in its own sequence, from 0."""
    groups: tuple[Group, ...]
    """The groups, in the order of the flat row, covering all of it."""

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[TokenArray]]) -> Self:
        """Packs groups of sequences; put sequences of similar length in one group."""
        tokens: list[TokenArray] = []
        positions: list[TokenArray] = []
        parts: list[Group] = []
        start = 0
        for sequences in groups:
            lengths = np.array([len(sequence) for sequence in sequences])
            longest, total = int(lengths.max()), int(lengths.sum())
            present = np.arange(longest) < lengths[:, None]
            padded = total < present.size
            tokens.extend(sequences)
            positions.append(np.broadcast_to(np.arange(longest), present.shape)[present])
            parts.append(
                Group(
                    start=start,
                    stop=start + total,
                    size=len(sequences),
                    length=longest,
                    rows=torch.from_numpy(np.flatnonzero(present)) if padded else None,
                    mask=torch.from_numpy(present) if padded else None,
                )
            )
            start += total
        return cls(
            torch.from_numpy(np.concatenate(tokens).astype(np.int64)),
            torch.from_numpy(np.concatenate(positions).astype(np.int64)),
            tuple(parts),
        )

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        if device.type == self.tokens.device.type:
            return self

        def move(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device, non_blocking=True)

        groups = tuple(
            Group(g.start, g.stop, g.size, g.length, move(g.rows), move(g.mask))
            for g in self.groups
        )
        return type(self)(
            self.tokens.to(device, non_blocking=True),
            self.positions.to(device, non_blocking=True),
            groups,
        )
