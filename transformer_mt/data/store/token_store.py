"""The encoded corpus on disk: flat token arrays with offsets, memory-mapped.

4.5 million pairs take about 0.6 GB, and a process holds only the pages that it reads.
"""

import errno
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.errors import InputError
from transformer_mt.files import read_json, sha256

FORMAT = 4
"""Version of the file format; it is part of the cache key, so other versions are built again."""

Lengths = npt.NDArray[np.int32]
LineNumbers = npt.NDArray[np.uint32]

_NO_LINE_NUMBERS = np.empty(0, np.uint32)


@dataclass(frozen=True)
class Side:
    """One side of a parallel corpus: sequence ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: npt.NDArray[Any]
    """[N] token ids, uint16 or uint32, all sequences end to end."""
    offsets: npt.NDArray[np.int64]
    """[pairs + 1] sequence boundaries, from 0 to N."""

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

    def slice(self, start: int, stop: int) -> "Side":
        """The sequences from ``start`` to ``stop - 1``; shares their tokens."""
        bounds = self.offsets[start : stop + 1]
        return Side(self.tokens[bounds[0] : bounds[-1]], bounds - bounds[0])

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

    @property
    def source_tokens(self) -> tuple[int, ...]:
        """Number of target tokens of each data source."""
        bounds = np.cumsum([0, *self.source_sizes])
        return tuple(np.diff(self.tgt.offsets[bounds]).tolist())

    def location(self, index: int) -> str:
        """Origin of a pair, as ``corpus/train.en.gz:1234``: file and line, or dataset and row."""
        if not len(self.line_numbers):
            return f"pair {index + 1}"
        source = int(np.searchsorted(np.cumsum(self.source_sizes), index, side="right"))
        return f"{self.source_names[source]}:{self.line_numbers[index]}"

    @classmethod
    def load(cls, folder: Path) -> "TokenStore":
        """Memory-maps a folder of a corpus (``corpus.py``); reads only the header.

        Raises:
            InputError: The folder is damaged.
        """
        try:
            meta = read_json(folder / "meta.json", {"format": int})
            if meta["format"] != FORMAT:
                raise ValueError(f"format {meta['format']}, expected {FORMAT}")
            if sum(meta["sources"]) != meta["pairs"]:
                raise ValueError(f"sources of {sum(meta['sources'])} pairs, not {meta['pairs']}")
            src, tgt = (_open_side(folder, name, meta) for name in ("src", "tgt"))
            return cls(
                src,
                tgt,
                source_sizes=tuple(meta["sources"]),
                fingerprint=meta["sha256"],
                source_names=tuple(meta["names"]),
                line_numbers=_memory_map(folder / "lines", np.dtype(np.uint32), meta["pairs"]),
                max_length_bound=int(meta["longest"]),
                folder=folder,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise
            raise damaged(folder.parent, f"{folder.name}: {error}") from None

    def verify(self) -> None:
        """Checks the tokens against their checksum; reads all of them, a gigabyte in about 1 s.

        Raises:
            InputError: The checksum does not match.
        """
        if self.folder is None:
            return
        names = [f"{side}.{kind}" for side in ("src", "tgt") for kind in ("tokens", "offsets")]
        # From the files: pages that are read through the memory map would count as memory.
        digests = "".join(sha256(self.folder / name) for name in names)
        if hashlib.sha256(bytes.fromhex(digests)).hexdigest() != self.fingerprint:
            raise damaged(self.folder.parent, f"{self.folder.name}: its checksum does not match")


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype for the token ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def damaged(folder: Path, reason: str) -> InputError:
    """The error of a damaged folder of a corpus."""
    return InputError(
        f"the encoded corpus {folder} is damaged ({reason}): delete the folder; it will be built "
        "again"
    )


def _open_side(folder: Path, name: str, meta: dict[str, Any]) -> Side:
    num_tokens = meta["tokens"][name]
    if meta["dtype"] not in ("uint16", "uint32"):
        raise ValueError(f"tokens of type {meta['dtype']}")
    tokens = _memory_map(folder / f"{name}.tokens", np.dtype(meta["dtype"]), num_tokens)
    offsets = _memory_map(folder / f"{name}.offsets", np.dtype(np.int64), meta["pairs"] + 1)
    if (offsets[0], offsets[-1]) != (0, num_tokens):
        raise ValueError(f"{name}.offsets does not match {name}.tokens")
    return Side(tokens, offsets)


def _memory_map(path: Path, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    if path.stat().st_size != size * dtype.itemsize:
        raise ValueError(f"{path.name} has the wrong size")
    # As a plain array over the mapped file: slices of np.memmap itself cost five times more.
    return np.asarray(np.memmap(path, dtype, mode="r")) if size else np.empty(0, dtype)
