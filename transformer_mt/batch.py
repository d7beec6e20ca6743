"""Sequences of different lengths as one flat row of tokens, without padding.

Everything that treats tokens one by one (embeddings, projections, feed-forward layers, the loss)
works on ``[N, D]``, N tokens end to end, and never multiplies padding. Only attention asks where
sequences begin. There are two answers:

* ``Buckets``, for any device and batch: groups of sequences of similar length, each of which
  attention pads to one length and computes with PyTorch's fused kernels.
* ``CuSeqlens``, for compiled training on a GPU: tensors of a fixed shape, whatever is in them, for
  kernels that take sequences of different lengths as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Change = Callable[[Tensor], Tensor]
TokenArray = npt.NDArray[Any]
Lengths = npt.NDArray[Any]

IGNORED = -100
"""In ``tgt_out``: nothing is to be predicted here."""


@dataclass(frozen=True)
class Group:
    """A stretch of the flat row: ``size`` sequences of at most ``length`` tokens each."""

    size: int
    length: int
    num_tokens: int
    """Rows of the flat tensors that are this group's."""
    rows: Tensor | None
    """[num_tokens] int64: where each token sits in the padded ``[size · length]`` rows; None if
    every sequence has ``length`` tokens, so that padding is a mere change of shape."""
    tokens: Tensor | None
    """[size · length] int64, the way back: which of the group's tokens stands in each padded row.
    Behind the end of a sequence its last token is repeated, where the mask hides it."""
    mask: Tensor | None
    """[size, length] bool: True for tokens, False for padding; None if there is no padding."""


@dataclass(frozen=True)
class Buckets:
    """Groups of sequences of similar length, in the order of the flat row, covering all of it."""

    groups: tuple[Group, ...]

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence."""
        return max(group.length for group in self.groups)

    @classmethod
    def of(cls, lengths: Lengths, sizes: Sequence[int]) -> Self:
        """Groups of ``sizes`` sequences each, from the lengths of all sequences in order."""
        parts = np.split(lengths, np.cumsum(sizes)[:-1])
        return cls(tuple(_group(part) for part in parts))

    def map(self, change: Change) -> Self:
        """The same groups, every tensor changed."""

        def each(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return type(self)(
            tuple(
                Group(g.size, g.length, g.num_tokens, each(g.rows), each(g.tokens), each(g.mask))
                for g in self.groups
            )
        )


@dataclass(frozen=True)
class CuSeqlens:
    """Where each sequence begins in the flat row, in a tensor of fixed size."""

    bounds: Tensor
    """[P + 1] int32: sequence i is rows ``bounds[i]:bounds[i + 1]``; the last ones may be empty."""
    max_length: int
    """No sequence is longer. A constant of the run, not the longest of the batch."""

    def map(self, change: Change) -> Self:
        """The same offsets, the tensor changed."""
        return type(self)(change(self.bounds), self.max_length)


Layout = Buckets | CuSeqlens


@dataclass(frozen=True)
class Packed:
    """A batch of token sequences laid end to end."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token in its own sequence, from 0."""
    layout: Layout

    @classmethod
    def bucketed(cls, tokens: TokenArray, lengths: Lengths, sizes: Sequence[int]) -> Self:
        """Packs sequences in groups; put sequences of similar length in one group.

        Args:
            tokens: [N], all sequences end to end.
            lengths: [B] tokens in each.
            sizes: Sequences in each group; they sum to B.
        """
        return cls(
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(positions(lengths)),
            Buckets.of(lengths, sizes),
        )

    @classmethod
    def of_sequences(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Packs sequences as one group."""
        lengths = np.array([len(sequence) for sequence in sequences])
        return cls.bucketed(np.concatenate(sequences), lengths, [len(sequences)])

    def map(self, change: Change) -> Self:
        """The same batch, every tensor changed."""
        return type(self)(change(self.tokens), change(self.positions), self.layout.map(change))

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Batch:
    """Pairs as the model takes them."""

    src: Packed
    """Source tokens with the end symbol."""
    tgt_in: Packed
    """Target tokens, shifted right: they begin with the start symbol (§3.1).

    The authors' code begins them with a vector of zeros instead."""
    tgt_out: Tensor
    """[N] int64: the token to predict at each position of ``tgt_in``, ending with the end symbol;
    ``IGNORED`` where there is nothing to predict."""
    weight: float = 1.0
    """0 for a stand-in batch, whose loss must not count."""

    def map(self, change: Change) -> "Batch":
        """The same batch, every tensor changed."""
        src, tgt_in = self.src.map(change), self.tgt_in.map(change)
        return Batch(src, tgt_in, change(self.tgt_out), self.weight)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in memory that a GPU reads by itself, while the CPU goes on."""
        return self.map(Tensor.pin_memory)


def positions(lengths: Lengths) -> npt.NDArray[np.int64]:
    """Position of each token in its own sequence, from 0, for sequences end to end: [N]."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def _group(lengths: Lengths) -> Group:
    size, longest, total = len(lengths), int(lengths.max()), int(lengths.sum())
    if total == size * longest:
        return Group(size, longest, total, None, None, None)
    places = np.arange(longest)
    mask = places < lengths[:, None]
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    tokens = starts[:, None] + np.minimum(places, lengths[:, None] - 1)
    return Group(
        size,
        longest,
        total,
        rows=torch.from_numpy(np.flatnonzero(mask)),
        tokens=torch.from_numpy(tokens.reshape(-1)),
        mask=torch.from_numpy(mask),
    )
