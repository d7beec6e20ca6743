"""The encoded corpus: one token store, or many shards of a corpus that is too large for one.

Each shard is a token store with a random part of the pairs of every data source, so it has the
mixture of the whole and can be planned, read and verified by itself. Which shard a pair belongs to
depends only on its number and on the number of shards.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import (
    FORMAT,
    LineNumbers,
    Side,
    TokenStore,
    damaged,
    token_type,
)

_SEED = 5
"""Seed of the division into shards, the same in all runs, which share the encoded corpus."""

_BUFFER_BYTES = 2**16
"""Bytes that are written to a file at a time: of many shards, a part has little for each."""


@dataclass(frozen=True)
class Corpus:
    """Encoded training pairs in shards."""

    sample: TokenStore
    """The first shard, a random sample of the pairs; in a small corpus, all of them."""
    source_sizes: npt.NDArray[np.int64]
    """[shards, sources] number of pairs."""
    source_tokens: npt.NDArray[np.int64]
    """[shards, sources] number of target tokens."""
    fingerprint: str = ""
    """Checksum of all tokens and offsets; empty for a corpus in memory."""
    shards: tuple[Path, ...] = ()
    """Folders of the shards; none of a corpus in memory."""

    def __len__(self) -> int:
        return int(self.source_sizes.sum())

    @property
    def num_shards(self) -> int:
        """Number of shards, at least 1."""
        return len(self.source_sizes)

    @property
    def max_length(self) -> int:
        """Upper bound of the lengths of all sequences."""
        return self.sample.max_length

    def open_shard(self, number: int) -> TokenStore:
        """Memory-maps a shard; its memory is freed with the result."""
        return TokenStore.load(self.shards[number])

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Opens a folder written by ``write_corpus``; reads only the headers.

        Raises:
            InputError: The folder is damaged.
        """
        shards = tuple(sorted(folder.glob("shard-*")))
        if not shards or [shard.name for shard in shards] != _shard_names(len(shards)):
            raise damaged(folder, "a shard is missing")
        sizes, tokens, fingerprints = [], [], []
        for shard in shards:  # one at a time: each has five open files
            store = TokenStore.load(shard)
            sizes.append(store.source_sizes)
            tokens.append(store.source_tokens)
            fingerprints.append(store.fingerprint)
        fingerprint = fingerprints[0]
        if len(shards) > 1:
            fingerprint = hashlib.sha256("".join(fingerprints).encode()).hexdigest()
        sample = TokenStore.load(shards[0])
        return cls(sample, np.array(sizes), np.array(tokens), fingerprint, shards)


class EncodedPairs(NamedTuple):
    """Consecutive pairs of a data source, in memory."""

    source: int
    """Index of the data source."""
    src: Side
    tgt: Side
    line_numbers: LineNumbers
    """[pairs] line or row of each pair in the data source."""

    def select(self, indices: npt.NDArray[np.int64]) -> Self:
        """The pairs at ``indices``."""
        src, tgt = (Side.from_lengths(*side.gather(indices)) for side in (self.src, self.tgt))
        return self._replace(src=src, tgt=tgt, line_numbers=self.line_numbers[indices])

    def slice(self, start: int, stop: int) -> Self:
        """The pairs from ``start`` to ``stop - 1``."""
        src, tgt = (side.slice(start, stop) for side in (self.src, self.tgt))
        return self._replace(src=src, tgt=tgt, line_numbers=self.line_numbers[start:stop])


def write_corpus(
    folder: Path,
    parts: Iterable[EncodedPairs],
    *,
    num_shards: int,
    vocab_size: int,
    source_names: Sequence[str],
) -> None:
    """Writes a corpus, one part at a time, into an existing folder.

    Files and checksums do not depend on how the corpus is divided into parts.

    Args:
        folder: Where to write.
        parts: The corpus, source by source.
        num_shards: Number of shards, at most the number of pairs.
        vocab_size: Number of token ids.
        source_names: File or dataset name of each data source.
    """
    writers = [
        _ShardWriter(folder / name, token_type(vocab_size), source_names)
        for name in _shard_names(num_shards)
    ]
    shard_of_next = _random_shards(num_shards)
    for part in parts:
        if num_shards == 1:
            writers[0].append(part)
            continue
        shards = np.fromiter(islice(shard_of_next, len(part.tgt)), np.int32, len(part.tgt))
        by_shard = part.select(np.argsort(shards, kind="stable"))
        bounds = np.searchsorted(np.sort(shards), np.arange(num_shards + 1)).tolist()
        for writer, (start, stop) in zip(writers, pairwise(bounds), strict=True):
            writer.append(by_shard.slice(start, stop))
    max_length = max(writer.max_length for writer in writers)
    for writer in writers:
        writer.finish(max_length)


def _shard_names(count: int) -> list[str]:
    return [f"shard-{number:05}-of-{count:05}" for number in range(1, count + 1)]


def _random_shards(count: int) -> Iterator[int]:
    """The shard of each pair, in order; of as many pairs as shards, each gets one."""
    rng = np.random.default_rng(_SEED)
    while True:
        yield from rng.permuted(np.tile(np.arange(count), (1000, 1)), axis=1).ravel().tolist()


class _ShardWriter:
    """Writes a token store, one part at a time. ``meta.json`` is written last.

    Its files are open only while they are written: there may be more shards than a process may open
    files.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], source_names: Sequence[str]):
        self.max_length = 0
        self._folder, self._dtype, self._source_names = folder, dtype, source_names
        self._source_sizes = [0] * len(source_names)
        self._num_tokens = {"src": 0, "tgt": 0}
        names = [f"{side}.{kind}" for side in self._num_tokens for kind in ("tokens", "offsets")]
        self._checksums = {name: hashlib.sha256() for name in names}
        self._unwritten = defaultdict[str, bytearray](bytearray)
        folder.mkdir()
        for side in self._num_tokens:
            self._write(f"{side}.tokens", np.empty(0, dtype))
            self._write(f"{side}.offsets", np.zeros(1, np.int64))
        self._write("lines", np.empty(0, np.uint32))

    def append(self, part: EncodedPairs) -> None:
        for name, side in (("src", part.src), ("tgt", part.tgt)):
            self._write(f"{name}.tokens", side.tokens.astype(self._dtype, copy=False))
            self._write(f"{name}.offsets", side.offsets[1:] + self._num_tokens[name])
            self._num_tokens[name] += len(side.tokens)
            self.max_length = max(self.max_length, int(side.lengths.max(initial=0)))
        self._write("lines", part.line_numbers.astype(np.uint32, copy=False))
        self._source_sizes[part.source] += len(part.tgt)

    def finish(self, max_length: int) -> None:
        """Writes the header, with the length of the longest sequence of all shards."""
        for name in self._unwritten:
            self._flush(name)
        digests = b"".join(checksum.digest() for checksum in self._checksums.values())
        meta = {
            "format": FORMAT,
            "dtype": self._dtype.name,
            "pairs": sum(self._source_sizes),
            "tokens": self._num_tokens,
            "longest": max_length,
            "sources": self._source_sizes,
            "names": list(self._source_names),
            "sha256": hashlib.sha256(digests).hexdigest(),
        }
        (self._folder / "meta.json").write_text(json.dumps(meta))

    def _write(self, name: str, array: npt.NDArray[Any]) -> None:
        content = np.ascontiguousarray(array).view(np.uint8).data
        if name in self._checksums:
            self._checksums[name].update(content)
        self._unwritten[name] += content
        if len(self._unwritten[name]) >= _BUFFER_BYTES:
            self._flush(name)

    def _flush(self, name: str) -> None:
        with (self._folder / name).open("ab") as file:
            file.write(self._unwritten[name])
        self._unwritten[name] = bytearray()
