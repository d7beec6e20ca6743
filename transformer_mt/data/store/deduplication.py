"""De-duplication of the training pairs by hashes, over all chunks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transformer_mt.data.cleaning.cleaner import CleaningReport
from transformer_mt.data.cleaning.filters import DUPLICATE_KEYS
from transformer_mt.data.store.encode import EncodedChunk

_HASHES_PER_PASS = 2**24
"""Approximate number of hashes sorted at a time, whatever the size of the corpus."""

Mask = npt.NDArray[np.bool_]


def deduplicate(chunks: list[EncodedChunk], report: CleaningReport) -> list[Mask]:
    """Finds the pairs to keep: the first of each set of duplicates, in corpus order.

    Args:
        chunks: All encoded chunks, in order.
        report: Names the active filters; receives the numbers of dropped pairs, without examples.

    Returns:
        For each chunk, a [pairs] bool mask, True for pairs to keep.
    """
    boundaries = np.cumsum([0, *(chunk.kept for chunk in chunks)])
    kept = np.ones(boundaries[-1], np.bool_)
    masks = [kept[start:end] for start, end in pairwise(boundaries)]  # views
    for name in (name for name in DUPLICATE_KEYS if name in report.dropped):  # active filters
        for duplicates in _find_duplicates(chunks, masks, boundaries, name):
            kept[duplicates] = False
            report.dropped[name] += len(duplicates)
    return masks


def _find_duplicates(
    chunks: list[EncodedChunk], masks: list[Mask], boundaries: npt.NDArray[np.int64], name: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Corpus indices of the kept pairs whose hash occurred before, in parts, each in order."""
    passes = 1 + int(boundaries[-1]) // _HASHES_PER_PASS
    for remainder in range(passes):  # equal hashes meet in the same pass
        indices, hashes = [], []
        for chunk, mask, start in zip(chunks, masks, boundaries, strict=False):
            column = chunk.hashes(name)
            selected = np.flatnonzero(mask & (column % np.uint64(passes) == remainder))
            indices.append(start + selected)
            hashes.append(column[selected])
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        yield np.delete(np.concatenate(indices), first)
