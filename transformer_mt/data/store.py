"""The encoded corpus on disk: flat token arrays with offsets, memory-mapped.

4.5 million pairs take about 0.5 GB here, and a worker's memory holds only the pages it reads.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.errors import InputError

FORMAT = 1
"""Version of the files written here; another one is rebuilt, not read."""

Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Side:
    """One side of a corpus: sequence ``i`` is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: npt.NDArray[Any]
    """Token ids, uint16 or uint32, all sequences end to end."""
    offsets: npt.NDArray[np.int64]
    """[pairs + 1] boundaries."""

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
        """[pairs] tokens in each sequence."""
        return np.diff(self.offsets).astype(np.int32)

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """A side held in memory."""
        tokens = np.fromiter(chain.from_iterable(sequences), np.uint32)
        lengths = [len(sequence) for sequence in sequences]
        return cls(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


@dataclass(frozen=True)
class TokenStore:
    """Encoded pairs. Every sequence ends with the end symbol."""

    src: Side
    tgt: Side
    fingerprint: str = ""
    """Checksum of all the tokens; empty for a store in memory."""

    def __len__(self) -> int:
        return len(self.tgt)

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
            src, tgt = (_open_side(folder, name, meta) for name in ("src", "tgt"))
            return cls(src, tgt, fingerprint=meta["sha256"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"the encoded corpus {folder} is damaged ({error}): delete the folder, "
                "it will be built again"
            ) from None


def write(
    folder: Path, batches: Iterable[Sequence[tuple[Sequence[int], Sequence[int]]]], vocab_size: int
) -> None:
    """Writes a corpus, a batch of ``(src, tgt)`` sequences at a time, into an existing folder.

    ``meta.json`` comes last: a folder without it was interrupted.
    """
    dtype = np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
    pairs, totals = 0, {"src": 0, "tgt": 0}
    checksum = hashlib.sha256()
    with (
        (folder / "src.tokens").open("wb") as src_tokens,
        (folder / "tgt.tokens").open("wb") as tgt_tokens,
        (folder / "src.lengths").open("wb") as src_lengths,
        (folder / "tgt.lengths").open("wb") as tgt_lengths,
    ):
        for batch in batches:
            pairs += len(batch)
            for side, name, tokens, lengths in (
                (0, "src", src_tokens, src_lengths),
                (1, "tgt", tgt_tokens, tgt_lengths),
            ):
                flat = np.fromiter(chain.from_iterable(pair[side] for pair in batch), dtype)
                sizes = np.array([len(pair[side]) for pair in batch], dtype=np.int32)
                flat.tofile(tokens)
                sizes.tofile(lengths)
                checksum.update(flat.tobytes() + sizes.tobytes())
                totals[name] += len(flat)
    meta = {
        "format": FORMAT,
        "dtype": dtype.name,
        "pairs": pairs,
        "tokens": totals,
        "sha256": checksum.hexdigest(),
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def _open_side(folder: Path, name: str, meta: dict[str, Any]) -> Side:
    dtype, total, pairs = np.dtype(meta["dtype"]), meta["tokens"][name], meta["pairs"]
    path = folder / f"{name}.tokens"
    if path.stat().st_size != total * dtype.itemsize:
        raise ValueError(f"{path.name} has the wrong size")
    lengths = np.fromfile(folder / f"{name}.lengths", dtype=np.int32)
    if len(lengths) != pairs or int(lengths.sum()) != total:
        raise ValueError(f"{name}.lengths does not match {path.name}")
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # As a plain array over the mapped file: slices of np.memmap itself cost five times more.
    tokens = np.asarray(np.memmap(path, dtype, mode="r")) if total else np.empty(0, dtype)
    return Side(tokens, offsets)
