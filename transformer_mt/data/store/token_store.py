"""The encoded corpus on disk: flat token arrays with offsets, memory-mapped.

4.5 million pairs take about 0.6 GB here, and a process holds only the pages it reads.
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

from transformer_mt.errors import InputError

FORMAT = 3
"""Version of the files written here; another one is rebuilt, not read."""

Lengths = npt.NDArray[np.int32]
LineNumbers = npt.NDArray[np.uint32]

_NO_LINES = np.empty(0, np.uint32)


@dataclass(frozen=True)
class Side:
    """One side of a corpus: sequence ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: npt.NDArray[Any]
    """Token ids, uint16 or uint32, all sequences end to end."""
    offsets: npt.NDArray[np.int64]
    """[pairs + 1] boundaries, from 0 to the number of tokens."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def gather(self, indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], Lengths]:
        """Some sequences end to end, and how many tokens each has."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        # Where sequence i begins here, against where it begins there: one shift for all of it.
        shifts = starts - (np.cumsum(lengths) - lengths)
        places = np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)
        return self.tokens[places], lengths.astype(np.int32)

    @property
    def lengths(self) -> Lengths:
        """[pairs] tokens in each sequence: 4 bytes a pair, computed at every call."""
        lengths = np.empty(len(self), np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths)
        return lengths

    def part(self, first: int, stop: int) -> Self:
        """Sequences ``first`` to ``stop - 1``; no token is copied."""
        offsets = self.offsets[first : stop + 1]
        return type(self)(self.tokens[offsets[0] : offsets[-1]], offsets - offsets[0])

    @classmethod
    def from_lengths(cls, tokens: npt.NDArray[Any], lengths: Lengths) -> Self:
        """A side held in memory, from the tokens and how many each sequence has."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(tokens, offsets)

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """A side held in memory, from its sequences."""
        tokens = np.fromiter(chain.from_iterable(sequences), np.uint32)
        return cls.from_lengths(tokens, np.array([len(s) for s in sequences], np.int32))


@dataclass(frozen=True)
class TokenStore:
    """Encoded pairs. Every sequence ends with the end symbol."""

    src: Side
    tgt: Side
    sources: tuple[int, ...] = ()
    """Pairs of each source of the corpus; they lie one source after the other."""
    fingerprint: str = ""
    """Checksum of all the tokens; empty for a store in memory."""
    names: tuple[str, ...] = ()
    """What each source is called: a file, or a dataset."""
    lines: LineNumbers = field(default_factory=_NO_LINES.copy)
    """[pairs] where each pair stands in its source, from 1; empty where nobody knows."""
    bound: int = 0
    """The ``longest`` of a store on disk."""

    def __len__(self) -> int:
        return len(self.tgt)

    @property
    def longest(self) -> int:
        """No sequence is longer; also not in another epoch, if each has a store of its own."""
        return self.bound or max(int(s.lengths.max(initial=0)) for s in (self.src, self.tgt))

    def place(self, index: int) -> str:
        """Where a pair comes from, as ``corpus/train.en.gz:1234``: file and line, or row."""
        if not len(self.lines):
            return f"pair {index + 1}"
        source = int(np.searchsorted(np.cumsum(self.sources), index, side="right"))
        return f"{self.names[source]}:{self.lines[index]}"

    @classmethod
    def load(cls, folder: Path) -> "TokenStore":
        """Opens a folder written by ``write``; reads nothing but the header.

        Raises:
            InputError: The folder is damaged.
        """
        try:
            meta = json.loads((folder / "meta.json").read_text())
            if meta["format"] != FORMAT:
                raise ValueError(f"format {meta['format']}, expected {FORMAT}")
            if meta["lines"] not in (0, meta["pairs"]):
                raise ValueError(f"{meta['lines']} line numbers of {meta['pairs']} pairs")
            src, tgt = (_open_side(folder, name, meta) for name in ("src", "tgt"))
            return cls(
                src,
                tgt,
                sources=tuple(meta["sources"]),
                fingerprint=meta["sha256"],
                names=tuple(meta["names"]),
                lines=_map(folder / "lines", np.dtype(np.uint32), meta["lines"]),
                bound=int(meta["longest"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"the encoded corpus {folder} is damaged ({error}): delete the folder, "
                "it will be built again"
            ) from None


def verify(corpus: TokenStore, folder: Path) -> None:
    """Reads a corpus once, a gigabyte in about a second, to see that it is as it was written.

    Raises:
        InputError: It is not.
    """
    checksums = [
        hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest()
        for side in (corpus.src, corpus.tgt)
        for array in (side.tokens, side.offsets)
    ]
    if hashlib.sha256(b"".join(checksums)).hexdigest() != corpus.fingerprint:
        raise InputError(
            f"the encoded corpus {folder} is damaged (its checksum is wrong): delete the folder, "
            "it will be built again"
        )


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type of token ids that holds a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


class Part(NamedTuple):
    """Some pairs of a corpus."""

    src: Side
    tgt: Side
    lines: LineNumbers = _NO_LINES
    """[pairs] where each stands in its source; of all parts, or of none."""


def write(
    folder: Path,
    parts: Iterable[Part],
    vocab_size: int,
    *,
    sources: Sequence[int] = (),
    names: Sequence[str] = (),
    longest: int = 0,
) -> None:
    """Writes a corpus, a part of it at a time, into an existing folder.

    ``meta.json`` comes last: a folder without it was interrupted. The checksum, taken on the way,
    is that of the corpus, however it was cut into parts.

    Args:
        folder: Where to write.
        parts: The corpus, some pairs at a time.
        vocab_size: Number of token ids.
        sources: Pairs of each source.
        names: What each source is called.
        longest: ``TokenStore.longest``, if it is to be more than the longest sequence here.
    """
    dtype = token_type(vocab_size)
    with ExitStack() as files:
        src, tgt = (_SideWriter(folder, name, dtype, files) for name in ("src", "tgt"))
        lines = files.enter_context((folder / "lines").open("wb"))
        for part in parts:
            src.add(part.src)
            tgt.add(part.tgt)
            lines.write(part.lines.astype(np.uint32, copy=False).data)
        num_lines = lines.tell() // 4
    meta = {
        "format": FORMAT,
        "dtype": dtype.name,
        "pairs": tgt.pairs,
        "tokens": {"src": src.total, "tgt": tgt.total},
        "longest": max(longest, src.longest, tgt.longest),
        "sources": list(sources),
        "names": list(names),
        "lines": num_lines,
        "sha256": hashlib.sha256(src.digest() + tgt.digest()).hexdigest(),
    }
    (folder / "meta.json").write_text(json.dumps(meta))


class _SideWriter:
    """Appends sequences to the two files of a side."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], files: ExitStack):
        self._dtype = dtype
        self._tokens, self._offsets = (
            files.enter_context((folder / f"{name}.{kind}").open("wb"))
            for kind in ("tokens", "offsets")
        )
        self._checksums = hashlib.sha256(), hashlib.sha256()
        self.pairs = self.total = self.longest = 0
        self._write(np.empty(0, dtype), np.zeros(1, np.int64))

    def add(self, part: Side) -> None:
        """Appends the sequences of a part."""
        self._write(part.tokens.astype(self._dtype, copy=False), part.offsets[1:] + self.total)
        self.pairs += len(part)
        self.total += len(part.tokens)
        self.longest = max(self.longest, int(part.lengths.max(initial=0)))

    def _write(self, *arrays: npt.NDArray[Any]) -> None:
        files = self._tokens, self._offsets
        for array, file, checksum in zip(arrays, files, self._checksums, strict=True):
            content = np.ascontiguousarray(array).view(np.uint8).data
            file.write(content)
            checksum.update(content)

    def digest(self) -> bytes:
        """Checksum of tokens and offsets."""
        return b"".join(checksum.digest() for checksum in self._checksums)


def _open_side(folder: Path, name: str, meta: dict[str, Any]) -> Side:
    total = meta["tokens"][name]
    if meta["dtype"] not in ("uint16", "uint32"):
        raise ValueError(f"tokens of type {meta['dtype']}")
    tokens = _map(folder / f"{name}.tokens", np.dtype(meta["dtype"]), total)
    offsets = _map(folder / f"{name}.offsets", np.dtype(np.int64), meta["pairs"] + 1)
    if (offsets[0], offsets[-1]) != (0, total):
        raise ValueError(f"{name}.offsets does not match {name}.tokens")
    return Side(tokens, offsets)


def _map(path: Path, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    if path.stat().st_size != size * dtype.itemsize:
        raise ValueError(f"{path.name} has the wrong size")
    # As a plain array over the mapped file: slices of np.memmap itself cost five times more.
    return np.asarray(np.memmap(path, dtype, mode="r")) if size else np.empty(0, dtype)
