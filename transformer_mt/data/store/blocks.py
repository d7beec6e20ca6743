"""Blocks of neighbouring pairs: an index with checksums, and advice to the kernel about them.

The index of a side is small enough to read at once: with it, the tokens of any block are known and
can be verified without reading the rest of the corpus.
"""

import mmap
import sys
import zlib
from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_PAIRS = 2**14
"""Pairs of a block: about 1 MB per side, which a disk reads at nearly its full rate."""

COLUMNS = ("first_token", "tokens_crc32", "offsets_crc32")
"""Columns of the index: position of the block's first token, and two checksums."""

Index = npt.NDArray[np.int64]

_LARGEST_FOLIO = 2**21
"""Bytes of a mapped file that one page fault may map."""

_COLD = 20
"""MADV_COLD of Linux 5.4, which Python does not name."""


class Advice(Enum):
    """Expected use of a part of a memory-mapped file, in the words of ``madvise``."""

    WILL_NEED = "will need"
    """Read ahead."""
    OWN_MAPPING = "own mapping"
    """In use for a while: a page fault in it maps no pages outside it."""
    DONT_NEED = "don't need"
    """Not used for a while: no longer counts as memory of this process."""
    COLD = "cold"
    """Like ``DONT_NEED``; also the first to leave the page cache when memory is short."""


def empty_index() -> Index:
    """The index of a side that has none."""
    return np.empty((0, len(COLUMNS)), np.int64)


class IndexWriter:
    """Builds the index of a side from consecutive parts; their division has no effect."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._room = 0

    def append(self, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> None:
        """Adds sequences, as they are stored.

        Args:
            tokens: [N] tokens of the sequences, in the dtype of the file.
            offsets: [sequences + 1] positions of their boundaries in the file.
        """
        start, end = 0, len(offsets) - 1
        while start < end:
            if not self._room:
                self._rows.append([int(offsets[start]), 0, 0])
                self._room = BLOCK_PAIRS
            stop = min(start + self._room, end)
            row, first = self._rows[-1], offsets[0]
            row[1] = _crc32(tokens[offsets[start] - first : offsets[stop] - first], row[1])
            row[2] = _crc32(offsets[start + 1 : stop + 1], row[2])
            self._room -= stop - start
            start = stop

    def index(self) -> Index:
        """[blocks, 3] the index, with ``COLUMNS``."""
        return np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))


def matches(
    index: Index, block: int, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64]
) -> bool:
    """Whether a block has the checksums of the index.

    Args:
        index: [blocks, 3] index of the side.
        block: Number of the block.
        tokens: [N] all tokens of the side.
        offsets: [pairs + 1] all offsets of the side.
    """
    first, tokens_crc32, offsets_crc32 = index[block].tolist()
    inside = offsets[block * BLOCK_PAIRS : (block + 1) * BLOCK_PAIRS + 1]
    return (
        int(inside[0]) == first
        and _crc32(inside[1:]) == offsets_crc32
        and _crc32(tokens[first : inside[-1]]) == tokens_crc32
    )


def advise(array: npt.NDArray[Any], start: int, stop: int, advice: Advice) -> None:
    """Advises the kernel about elements ``start`` to ``stop - 1`` of an array.

    Without effect unless the array is a plain view of a whole ``np.memmap``.
    """
    mapping = getattr(array.base, "base", None)
    if not isinstance(mapping, mmap.mmap) or start >= stop:
        return
    begin = start * array.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
    end = stop * array.itemsize
    with suppress(OSError):  # an older kernel, or too many parts
        for flag in _FLAGS.get(advice, ()):
            mapping.madvise(flag, begin, end - begin)
    if advice in (Advice.DONT_NEED, Advice.COLD):
        begin, end = max(0, begin - _LARGEST_FOLIO), min(end + _LARGEST_FOLIO, len(mapping))
        mapping.madvise(mmap.MADV_DONTNEED, begin, end - begin)


_FLAGS = {Advice.WILL_NEED: [mmap.MADV_WILLNEED]}
if sys.platform == "linux":
    # With a flag of its own, a part is a mapping of its own, at whose ends the kernel stops.
    _FLAGS |= {Advice.OWN_MAPPING: [mmap.MADV_DONTDUMP], Advice.COLD: [mmap.MADV_DODUMP, _COLD]}


def _crc32(array: npt.NDArray[Any], value: int = 0) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, value)
