"""Batch shapes on a coarse grid, so that the batches of a run have few different shapes.

On a CPU every new shape costs time: oneDNN generates code for a 16-bit product of each new shape
and keeps 1,024 of them, and blocks of memory whose sizes never repeat fragment the heap, so that a
run gets slower and its memory grows. So the rows of flat tensors, and the buckets of sequences in
attention, are padded to sizes of a grid. The loss and attention ignore the padding.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transformer_mt.batch import Lengths, round_up_to_grid

_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Lengths of sequences in attention; longer ones are multiples of the last."""

_BUCKET_COST = 5000
"""Pairs of positions whose attention costs as much as the kernels of one more bucket."""


def padded_rows(num_tokens: int) -> int:
    """Number of rows for flat tensors of ``num_tokens``: at least one more, about 3% more."""
    return round_up_to_grid(num_tokens + 1, steps=16)


def padded_sequences(num_sequences: int) -> int:
    """Number of sequences of a bucket in attention, padding included: at least one more."""
    return round_up_to_grid(num_sequences + 1, steps=4)


def padded_lengths(lengths: Lengths) -> npt.NDArray[np.int64]:
    """The padded length of each sequence, such that few different ones occur.

    Args:
        lengths: [sequences] numbers of tokens.

    Returns:
        [sequences], each at least as long.
    """
    last = _LENGTHS[-1]
    grid = np.array([*_LENGTHS, *range(2 * last, int(lengths.max(initial=0)) + last, last)])
    level = np.searchsorted(grid, lengths)
    counts = np.bincount(level, minlength=len(grid))
    # A length that few sequences have is not worth kernels of its own: they join the next longer.
    target = np.arange(len(grid))
    for i, (length, longer) in enumerate(pairwise(grid.tolist())):
        if counts[i] * (longer**2 - length**2) < _BUCKET_COST and counts[i + 1 :].any():
            counts[i + 1] += counts[i]
            target[target == i] = i + 1
    return grid[target[level]]
