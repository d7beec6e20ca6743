"""Batches of token sequences of different lengths, packed end to end without padding.

Token-wise layers (embeddings, projections, feed-forward layers, the loss) work on flat ``[N, D]``
tensors, so no computation is spent on padding. Only attention needs sequence boundaries, which a
``Layout`` gives in one of two forms:

* ``Buckets``, for any device: buckets of sequences of similar length; attention pads each bucket
  to its longest sequence and runs PyTorch's fused kernels.
* ``CuSeqlens``, for compiled training on a GPU: tensors of fixed shape for variable-length kernels.

Shapes: B sequences, S the length of the longest one, N packed tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class Bucket:
    """Consecutive sequences of similar length, which attention pads to one length."""

    num_sequences: int
    """B."""
    max_length: int
    """S: number of tokens of the longest sequence."""
    num_tokens: int
    """N: number of rows of the flat tensors that belong to this bucket."""
    unpad_indices: Tensor | None
    """[N] int64: index of each token in the padded ``[B · S]`` rows. None if every sequence has
    ``max_length`` tokens, so that padding is only a change of shape."""
    pad_indices: Tensor | None
    """[B · S] int64: index of the bucket's token in each padded row. Padding repeats the last token
    of its sequence; the mask hides it. None if there is no padding."""
    mask: Tensor | None
    """[B, S] bool, True for tokens and False for padding; None if there is no padding."""

    @classmethod
    def from_lengths(cls, lengths: Lengths) -> Self:
        """A bucket of sequences of the given [B] lengths."""
        shape = len(lengths), int(lengths.max()), int(lengths.sum())
        num_sequences, max_length, num_tokens = shape
        if num_tokens == num_sequences * max_length:
            return cls(*shape, None, None, None)
        columns = np.arange(max_length)
        mask = columns < lengths[:, None]
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        pad_indices = starts[:, None] + np.minimum(columns, lengths[:, None] - 1)
        return cls(
            *shape,
            unpad_indices=torch.from_numpy(np.flatnonzero(mask)),
            pad_indices=torch.from_numpy(pad_indices.reshape(-1)),
            mask=torch.from_numpy(mask),
        )

    def map(self, function: TensorFunction) -> Self:
        """Applies a function to every tensor."""
        tensors = (self.unpad_indices, self.pad_indices, self.mask)
        return type(self)(
            self.num_sequences,
            self.max_length,
            self.num_tokens,
            *(None if tensor is None else function(tensor) for tensor in tensors),
        )


@dataclass(frozen=True)
class Buckets:
    """Layout of a flat tensor as consecutive buckets that cover all of its rows."""

    buckets: tuple[Bucket, ...]

    @property
    def max_length(self) -> int:
        """Number of tokens of the longest sequence."""
        return max(bucket.max_length for bucket in self.buckets)

    @classmethod
    def from_lengths(cls, lengths: Lengths, bucket_sizes: Sequence[int]) -> Self:
        """Splits sequences of the given lengths into buckets of ``bucket_sizes`` sequences."""
        parts = np.split(lengths, np.cumsum(bucket_sizes)[:-1])
        return cls(tuple(Bucket.from_lengths(part) for part in parts))

    def map(self, function: TensorFunction) -> Self:
        """Applies a function to every tensor."""
        return type(self)(tuple(bucket.map(function) for bucket in self.buckets))


@dataclass(frozen=True)
class CuSeqlens:
    """Layout of a flat tensor as cumulative sequence lengths, in a tensor of fixed size."""

    cu_seqlens: Tensor
    """[B + 1] int32: sequence i is rows ``cu_seqlens[i]:cu_seqlens[i + 1]``; the last sequences
    may be empty."""
    max_length: int
    """Upper bound of the sequence lengths: a constant of the run, not of the batch."""

    def map(self, function: TensorFunction) -> Self:
        """Applies a function to the tensor."""
        return type(self)(function(self.cu_seqlens), self.max_length)


Layout = Buckets | CuSeqlens


@dataclass(frozen=True)
class Packed:
    """Token sequences packed end to end."""

    tokens: Tensor
    """[N] int64 token ids."""
    positions: Tensor
    """[N] int64 position of each token in its own sequence, from 0."""
    layout: Layout
    """Sequence boundaries."""

    @classmethod
    def from_flat(cls, tokens: TokenArray, lengths: Lengths, bucket_sizes: Sequence[int]) -> Self:
        """Packs sequences that are already end to end, in buckets.

        Args:
            tokens: [N] token ids.
            lengths: [B] number of tokens of each sequence.
            bucket_sizes: Number of sequences in each bucket; they sum to B. Sequences of similar
                length should share a bucket.
        """
        return cls(
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(position_ids(lengths)),
            Buckets.from_lengths(lengths, bucket_sizes),
        )

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """Packs sequences as one bucket."""
        lengths = np.array([len(sequence) for sequence in sequences])
        return cls.from_flat(np.concatenate(sequences), lengths, [len(sequences)])

    def map(self, function: TensorFunction) -> Self:
        """Applies a function to every tensor."""
        layout = self.layout.map(function)
        return type(self)(function(self.tokens), function(self.positions), layout)

    def to(self, device: torch.device) -> Self:
        """Moves every tensor to a device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as the model takes them."""

    src: Packed
    """Source tokens, ending with the end symbol."""
    tgt_in: Packed
    """Decoder input: target tokens shifted right, beginning with the start symbol (§3.1).

    The authors' code begins with a vector of zeros instead."""
    tgt_out: Tensor
    """[N] int64: the token to predict at each position of ``tgt_in``, ending with the end symbol;
    ``IGNORE_INDEX`` where there is nothing to predict."""
    weight: float = 1.0
    """Weight of the batch's loss: 0 for a placeholder that only takes part in collectives."""

    def map(self, function: TensorFunction) -> "Batch":
        """Applies a function to every tensor."""
        src, tgt_in = self.src.map(function), self.tgt_in.map(function)
        return Batch(src, tgt_in, function(self.tgt_out), self.weight)

    def to(self, device: torch.device) -> "Batch":
        """Moves every tensor to a device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Copies every tensor to pinned memory, for asynchronous transfer to a GPU."""
        return self.map(Tensor.pin_memory)


def position_ids(lengths: Lengths) -> npt.NDArray[np.int64]:
    """[N] position of each token in its own sequence, from 0, for packed sequences."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
