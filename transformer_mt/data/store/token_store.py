"""The encoded corpus on disk: flat token arrays with offsets, memory-mapped.

4.5 million pairs take about 0.6 GB, and a process holds only the pages that it reads.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store import blocks
from transformer_mt.data.store.blocks import BLOCK_PAIRS, Advice
from transformer_mt.errors import InputError

FORMAT = 3
"""Version of the file format; it is part of the cache key, so other versions are built again."""

Lengths = npt.NDArray[np.int32]
LineNumbers = npt.NDArray[np.uint32]

_NO_LINE_NUMBERS = np.empty(0, np.uint32)

_SAMPLE_RUNS = 64
"""Runs of neighbouring pairs in a sample of a store."""


@dataclass(frozen=True)
class Side:
    """One side of a parallel corpus: sequence ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: npt.NDArray[Any]
    """[N] token ids, uint16 or uint32, all sequences end to end."""
    offsets: npt.NDArray[np.int64]
    """[pairs + 1] sequence boundaries, from 0 to N."""
    index: blocks.Index = field(default_factory=blocks.empty_index)
    """[blocks, 3] index of the blocks of ``BLOCK_PAIRS`` sequences; empty if there is none."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def gather(self, indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], Lengths]:
        """Copies the sequences at ``indices`` [B]: their tokens end to end [N], and lengths [B]."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        # Distance between a sequence's start in the corpus and its start in the result.
        shifts = starts - (np.cumsum(lengths) - lengths)
        positions = np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)
        return self.tokens[positions], lengths.astype(np.int32)

    @property
    def lengths(self) -> Lengths:
        """[pairs] int32 number of tokens of each sequence, computed at every access."""
        lengths = np.empty(len(self), np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths)
        return lengths

    def lengths_of(self, indices: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """[B] number of tokens of the sequences at ``indices`` [B]."""
        return self.offsets[indices + 1] - self.offsets[indices]

    def boundaries(self, pairs: int) -> npt.NDArray[np.int64]:
        """First token of every sequence whose number is a multiple of ``pairs``."""
        if len(self.index) and pairs == BLOCK_PAIRS:
            return self.index[:, 0]
        return self.offsets[:-1:pairs].copy()

    def advise(self, start: int, stop: int, advice: Advice) -> None:
        """Advises the kernel about the tokens of the sequences ``start`` to ``stop - 1``."""
        if advice is Advice.WILL_NEED:  # a fault on their boundaries would read far around them
            self.advise_offsets(start, stop, advice)
        blocks.advise(self.tokens, int(self.offsets[start]), int(self.offsets[stop]), advice)

    def advise_offsets(self, start: int, stop: int, advice: Advice) -> None:
        """Advises the kernel about the boundaries of the sequences ``start`` to ``stop - 1``."""
        blocks.advise(self.offsets, start, stop + 1, advice)

    @classmethod
    def from_lengths(cls, tokens: npt.NDArray[Any], lengths: Lengths) -> Self:
        """A side in memory, from its tokens [N] and the length of each sequence [pairs]."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(tokens, offsets)

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """A side in memory, from its sequences."""
        tokens = np.fromiter(chain.from_iterable(sequences), np.uint32)
        return cls.from_lengths(tokens, np.array([len(s) for s in sequences], np.int32))


@dataclass(frozen=True)
class TokenStore:
    """Encoded sentence pairs. Every sequence ends with the end symbol."""

    src: Side
    """Source sequences."""
    tgt: Side
    """Target sequences."""
    source_sizes: tuple[int, ...] = ()
    """Number of pairs of each data source; the sources follow one another."""
    fingerprint: str = ""
    """SHA-256 of all tokens and offsets; empty for a store in memory."""
    source_names: tuple[str, ...] = ()
    """File or dataset name of each data source."""
    line_numbers: LineNumbers = field(default_factory=_NO_LINE_NUMBERS.copy)
    """[pairs] line or row of each pair in its data source, from 1; empty if unknown."""
    max_length_bound: int = 0
    """Upper bound of the sequence lengths, as recorded on disk; 0 if unknown."""
    folder: Path | None = None
    """Folder of the store; None in memory."""

    def __len__(self) -> int:
        return len(self.tgt)

    @property
    def max_length(self) -> int:
        """Upper bound of the sequence lengths, whatever the segmentation that is sampled."""
        return self.max_length_bound or max(
            int(side.lengths.max(initial=0)) for side in (self.src, self.tgt)
        )

    def pair_lengths(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[2, B] source and target lengths of the pairs at ``indices``."""
        return np.stack([side.lengths_of(indices) for side in (self.src, self.tgt)])

    def sample(self, count: int) -> npt.NDArray[np.int64]:
        """Indices of about ``count`` pairs in evenly spaced runs; of all if there are no more."""
        run = max(1, count // _SAMPLE_RUNS)
        if len(self) <= count or len(self) < run * _SAMPLE_RUNS:
            return np.arange(len(self))
        starts = np.linspace(0, len(self) - run, _SAMPLE_RUNS).astype(np.int64)
        return (starts[:, None] + np.arange(run)).reshape(-1)

    def unmap(self) -> None:
        """Gives the pages that were read back to the page cache: they no longer count as memory."""
        for side in (self.src, self.tgt):
            blocks.advise(side.tokens, 0, len(side.tokens), Advice.DONT_NEED)
            blocks.advise(side.offsets, 0, len(side.offsets), Advice.DONT_NEED)

    @property
    def has_checksums(self) -> bool:
        """Whether every block can be verified by itself."""
        return bool(len(self.src.index))

    def verify_block(self, block: int) -> None:
        """Checks a block of ``BLOCK_PAIRS`` pairs; without an index, does nothing.

        Raises:
            InputError: The block is damaged.
        """
        for side in (self.src, self.tgt):
            if len(side.index) and not blocks.matches(side.index, block, side.tokens, side.offsets):
                raise _damaged(self.folder, f"the checksum of block {block} does not match")

    def location(self, index: int) -> str:
        """Origin of a pair, as ``corpus/train.en.gz:1234``: file and line, or dataset and row."""
        if not len(self.line_numbers):
            return f"pair {index + 1}"
        source = int(np.searchsorted(np.cumsum(self.source_sizes), index, side="right"))
        return f"{self.source_names[source]}:{self.line_numbers[index]}"

    @classmethod
    def load(cls, folder: Path) -> "TokenStore":
        """Memory-maps a folder written by ``write``; reads only the header.

        Raises:
            InputError: The folder is damaged.
        """
        try:
            meta = json.loads((folder / "meta.json").read_text())
            if meta["format"] != FORMAT:
                raise ValueError(f"format {meta['format']}, expected {FORMAT}")
            if meta["lines"] not in (0, meta["pairs"]):
                raise ValueError(f"{meta['lines']} line numbers for {meta['pairs']} pairs")
            src, tgt = (_open_side(folder, name, meta) for name in ("src", "tgt"))
            return cls(
                src,
                tgt,
                source_sizes=tuple(meta["sources"]),
                fingerprint=meta["sha256"],
                source_names=tuple(meta["names"]),
                line_numbers=_memory_map(folder / "lines", np.dtype(np.uint32), meta["lines"]),
                max_length_bound=int(meta["longest"]),
                folder=folder,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, str(error)) from None


def verify(store: TokenStore, folder: Path) -> None:
    """Checks a store against its checksum; reads all of it, a gigabyte in about a second.

    Raises:
        InputError: The checksum does not match.
    """
    checksums = [
        hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest()
        for side in (store.src, store.tgt)
        for array in (side.tokens, side.offsets)
    ]
    if hashlib.sha256(b"".join(checksums)).hexdigest() != store.fingerprint:
        raise _damaged(folder, "its checksum does not match")


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype for the token ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


class EncodedPairs(NamedTuple):
    """Consecutive pairs of a corpus, in memory."""

    src: Side
    tgt: Side
    line_numbers: LineNumbers = _NO_LINE_NUMBERS
    """[pairs] line or row of each pair in its data source; empty in all parts, or in none."""


def write(
    folder: Path,
    parts: Iterable[EncodedPairs],
    vocab_size: int,
    *,
    source_sizes: Sequence[int] = (),
    source_names: Sequence[str] = (),
) -> None:
    """Writes a corpus, one part at a time, into an existing folder.

    ``meta.json`` is written last: without it, a folder is incomplete. The checksum does not depend
    on how the corpus is divided into parts.

    Args:
        folder: Where to write.
        parts: The corpus, in order.
        vocab_size: Number of token ids.
        source_sizes: Number of pairs of each data source.
        source_names: File or dataset name of each data source.
    """
    dtype = token_type(vocab_size)
    with ExitStack() as files:
        src, tgt = (_SideWriter(folder, name, dtype, files) for name in ("src", "tgt"))
        lines = files.enter_context((folder / "lines").open("wb"))
        for part in parts:
            src.append(part.src)
            tgt.append(part.tgt)
            lines.write(part.line_numbers.astype(np.uint32, copy=False).data)
        num_lines = lines.tell() // 4
    for side in (src, tgt):
        side.index.index().tofile(folder / f"{side.name}.index")
    meta = {
        "format": FORMAT,
        "dtype": dtype.name,
        "pairs": tgt.num_sequences,
        "tokens": {"src": src.num_tokens, "tgt": tgt.num_tokens},
        "longest": max(src.max_length, tgt.max_length),
        "sources": list(source_sizes),
        "names": list(source_names),
        "lines": num_lines,
        "block_pairs": BLOCK_PAIRS,
        "sha256": hashlib.sha256(src.digest() + tgt.digest()).hexdigest(),
    }
    (folder / "meta.json").write_text(json.dumps(meta))


class _SideWriter:
    """Appends sequences to the token and offset files of a side."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], files: ExitStack):
        self.name, self._dtype = name, dtype
        self.index = blocks.IndexWriter()
        self._files = [
            files.enter_context((folder / f"{name}.{kind}").open("wb"))
            for kind in ("tokens", "offsets")
        ]
        self._checksums = hashlib.sha256(), hashlib.sha256()
        self.num_sequences = self.num_tokens = self.max_length = 0
        self._write(np.empty(0, dtype), np.zeros(1, np.int64))

    def append(self, part: Side) -> None:
        tokens, offsets = (
            part.tokens.astype(self._dtype, copy=False),
            part.offsets + self.num_tokens,
        )
        self._write(tokens, offsets[1:])
        self.index.append(tokens, offsets)
        self.num_sequences += len(part)
        self.num_tokens += len(part.tokens)
        self.max_length = max(self.max_length, int(part.lengths.max(initial=0)))

    def _write(self, *arrays: npt.NDArray[Any]) -> None:
        for array, file, checksum in zip(arrays, self._files, self._checksums, strict=True):
            content = np.ascontiguousarray(array).view(np.uint8).data
            file.write(content)
            checksum.update(content)

    def digest(self) -> bytes:
        return b"".join(checksum.digest() for checksum in self._checksums)


def _open_side(folder: Path, name: str, meta: dict[str, Any]) -> Side:
    num_tokens = meta["tokens"][name]
    if meta["dtype"] not in ("uint16", "uint32"):
        raise ValueError(f"tokens of type {meta['dtype']}")
    tokens = _memory_map(folder / f"{name}.tokens", np.dtype(meta["dtype"]), num_tokens)
    offsets = _memory_map(folder / f"{name}.offsets", np.dtype(np.int64), meta["pairs"] + 1)
    if (offsets[0], offsets[-1]) != (0, num_tokens):
        raise ValueError(f"{name}.offsets does not match {name}.tokens")
    if meta.get("block_pairs") != BLOCK_PAIRS:  # written by an earlier version
        return Side(tokens, offsets)
    index = np.fromfile(folder / f"{name}.index", np.int64).reshape(-1, len(blocks.COLUMNS))
    if len(index) != -(-meta["pairs"] // BLOCK_PAIRS):
        raise ValueError(f"{name}.index has the wrong size")
    return Side(tokens, offsets, index)


def _memory_map(path: Path, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    if path.stat().st_size != size * dtype.itemsize:
        raise ValueError(f"{path.name} has the wrong size")
    # As a plain array over the mapped file: slices of np.memmap itself cost five times more.
    return np.asarray(np.memmap(path, dtype, mode="r")) if size else np.empty(0, dtype)


def _damaged(folder: Path | None, reason: str) -> InputError:
    return InputError(
        f"the encoded corpus {folder} is damaged ({reason}): delete the folder; it will be built "
        "again"
    )
