"""Batches of token sequences of different lengths, packed end to end without padding.

Token-wise layers (embeddings, projections, feed-forward layers, the loss) work on flat ``[N, D]``
tensors, so no computation is spent on padding. Only attention needs the boundaries of sequences,
which are given in one of two forms:

* ``Buckets``, for any device: buckets of sequences of similar length; attention pads each bucket
  to its longest sequence.
* ``CuSeqlens``, for compiled training on a GPU: cumulative lengths for variable-length kernels.

Shapes: B sequences, S the length of the longest one, N packed tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TensorFunction = Callable[[Tensor], Tensor]
TokenArray = npt.NDArray[Any]
Lengths = npt.NDArray[Any]

IGNORE_INDEX = -100
"""Value of ``tgt_out`` at positions that the loss ignores."""


@dataclass(frozen=True)
class _Tensors:
    """Base of the dataclasses of tensors below, which may be nested and may have other fields."""

    def map(self, function: TensorFunction) -> Self:
        """Applies a function to every tensor."""
        mapped: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                mapped[name] = function(value)
            elif isinstance(value, _Tensors):
                mapped[name] = value.map(function)
            elif isinstance(value, tuple):
                mapped[name] = tuple(part.map(function) for part in value)
        return replace(self, **mapped)

    def to(self, device: torch.device) -> Self:
        """Moves every tensor to a device."""
        return self.map(partial(Tensor.to, device=device, non_blocking=True))

    def pin_memory(self) -> Self:
        """Copies every tensor to pinned memory, for asynchronous transfer to a GPU."""
        return self.map(Tensor.pin_memory)


@dataclass(frozen=True)
class Bucket(_Tensors):
    """Consecutive sequences of similar length, which attention pads to one length."""

    num_sequences: int
    """B, padding included."""
    max_length: int
    """S, padding included."""
    mask: Tensor | None
    """[B, S] bool, True for tokens and False for padding; None if there is no padding. In sequences
    that are only padding the first position is True, because a softmax needs a key."""


@dataclass(frozen=True)
class Buckets(_Tensors):
    """Boundaries of the sequences in a flat tensor of N rows, as consecutive buckets.

    The buckets' sequences, padded, are P rows: the sum of B · S over the buckets.
    """

    buckets: tuple[Bucket, ...]
    max_length: int
    """Length of the longest sequence, padding included."""
    pad_indices: Tensor
    """[P] int64: index of the flat row in each padded row. Padding is a copy of the last flat row;
    the mask hides it."""
    unpad_indices: Tensor
    """[N] int64: index of each flat row in the padded rows, where a flat row that is padding itself
    is a row of padding."""
    head_rows: dict[int, tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The same two indices for rows of heads, by number of heads: see ``packed_attention.py``."""

    @classmethod
    def from_lengths(
        cls,
        lengths: Lengths,
        bucket_sizes: Sequence[int],
        shapes: Sequence[tuple[int, int]],
        num_rows: int,
    ) -> Self:
        """Splits sequences into buckets.

        Args:
            lengths: [sequences] number of tokens of each sequence.
            bucket_sizes: Number of sequences, best of similar length, in each bucket.
            shapes: B and S of each bucket, with room for its sequences and, if flat rows are
                padding, for more.
            num_rows: N, at least the number of tokens; the rows after them are padding.
        """
        parts = np.split(lengths, np.cumsum(bucket_sizes)[:-1])
        buckets, flat_masks, longest = [], [], 0
        for part, shape in zip(parts, shapes, strict=True):
            mask = np.zeros(shape, np.bool_)
            mask[: len(part)] = np.arange(shape[1]) < part[:, None]
            full = bool(mask.all())
            flat_masks.append(mask.flatten())
            mask[:, 0] = True
            buckets.append(Bucket(*shape, None if full else torch.from_numpy(mask)))
            longest = max(longest, shape[1])
        is_token = np.concatenate(flat_masks)
        tokens = np.flatnonzero(is_token)
        pad_indices = np.full(len(is_token), num_rows - 1, np.int64)
        pad_indices[tokens] = np.arange(len(tokens))
        unpad_indices = np.full(num_rows, int(is_token.argmin()), np.int64)
        unpad_indices[: len(tokens)] = tokens
        indices = torch.from_numpy(pad_indices), torch.from_numpy(unpad_indices)
        return cls(tuple(buckets), longest, *indices)


@dataclass(frozen=True)
class CuSeqlens(_Tensors):
    """Boundaries of the sequences in a flat tensor as cumulative lengths."""

    cu_seqlens: Tensor
    """[B + 1] int32: sequence i is rows ``cu_seqlens[i]:cu_seqlens[i + 1]``. B may differ from
    batch to batch, and is the same on both sides."""
    max_length: int
    """Upper bound of the sequence lengths: a constant of the run, not of the batch."""


Boundaries = Buckets | CuSeqlens


@dataclass(frozen=True)
class Packed(_Tensors):
    """Token sequences packed end to end."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token in its own sequence, from 0."""
    boundaries: Boundaries
    """Where each sequence begins and ends."""

    @classmethod
    def from_flat(
        cls, tokens: TokenArray, lengths: Lengths, boundaries: Boundaries, num_rows: int
    ) -> Self:
        """Packs sequences that are already end to end; tokens and positions of padding are 0."""
        padding = (0, num_rows - len(tokens))
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        positions = np.arange(len(tokens), dtype=np.int64) - np.repeat(starts, lengths)
        return cls(
            torch.from_numpy(np.pad(tokens.astype(np.int64), padding)),
            torch.from_numpy(np.pad(positions, padding)),
            boundaries,
        )

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Packs sequences as one bucket."""
        lengths, tokens = np.array(list(map(len, sequences))), np.concatenate(sequences)
        shape = len(lengths), int(lengths.max())
        buckets = Buckets.from_lengths(lengths, shape[:1], [shape], len(tokens))
        return cls.from_flat(tokens, lengths, buckets, len(tokens))


@dataclass(frozen=True)
class Batch(_Tensors):
    """A batch of sentence pairs, the input of the model."""

    src: Packed
    """Source tokens, ending with the end symbol."""
    tgt_in: Packed
    """Decoder input: target tokens shifted right, beginning with the start symbol (§3.1).

    The authors' code begins with a vector of zeros instead."""
    tgt_out: Tensor
    """[N] int64: the token to predict at each position of ``tgt_in``, ending with the end symbol;
    ``IGNORE_INDEX`` where there is nothing to predict."""
