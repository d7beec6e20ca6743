"""De-duplication of the training pairs by hashes, over all chunks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transformer_mt.config import DataConfig
from transformer_mt.data.cleaning.cleaner import EXAMPLES, CleaningReport
from transformer_mt.data.cleaning.filters import DUPLICATE_KEYS
from transformer_mt.data.store.encode import EncodedChunk
from transformer_mt.data.subwords.tokenizer import Tokenizer

_HASHES_PER_PASS = 2**24
"""Approximate number of hashes sorted at a time, whatever the size of the corpus."""

Mask = npt.NDArray[np.bool_]


def deduplicate(
    chunks: list[EncodedChunk], data: DataConfig, tokenizer: Tokenizer, report: CleaningReport
) -> list[Mask]:
    """Finds the pairs to keep: the first of each set of duplicates, in corpus order.

    Args:
        chunks: All encoded chunks, in order.
        data: The configuration; its cleaning settings define what a duplicate is.
        tokenizer: Decodes the examples of the report.
        report: Receives the dropped pairs.

    Returns:
        For each chunk, a [pairs] bool mask, True for pairs to keep.
    """
    boundaries = np.cumsum([0, *(chunk.kept for chunk in chunks)])
    kept = np.ones(boundaries[-1], np.bool_)
    masks = [kept[start:end] for start, end in pairwise(boundaries)]  # views
    for name in (name for name in DUPLICATE_KEYS if name in report.dropped):  # active filters
        first: list[int] = []
        for duplicates in _find_duplicates(chunks, masks, boundaries, name):
            kept[duplicates] = False
            report.dropped[name] += len(duplicates)
            first = sorted([*first, *duplicates[:EXAMPLES].tolist()])[:EXAMPLES]
        report.dropped[name] -= len(first)  # which the examples count again
        for index in first:
            number = int(np.searchsorted(boundaries, index, side="right")) - 1
            chunk, i = chunks[number], int(index - boundaries[number])
            pairs = chunk.read()
            src, tgt = tokenizer.decode([side[i].tolist() for side in (pairs.src, pairs.tgt)])
            source = data.train[chunk.chunk.source].name
            report.add(name, f"{source}:{pairs.line_numbers[i]}", src, tgt)
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
        repeated = ~first_occurrences(np.concatenate(hashes))
        del hashes
        yield np.concatenate(indices)[repeated]


def first_occurrences(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """[n] whether each hash is the first of its value; needs 2.5 times the memory of ``hashes``."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = np.ones(len(hashes), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.empty_like(new)
    first[order] = new
    return first
