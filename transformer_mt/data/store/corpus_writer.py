"""Writing of an encoded corpus, whose pairs are divided among its shards.

Which shard a pair belongs to depends only on its number and on the number of shards.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import (
    ARRAYS,
    FORMAT,
    TokenStore,
    checksum,
    token_type,
)

_SEED = 5
"""Seed of the division into shards, the same in all runs, which share the encoded corpus."""

_BUFFER_BYTES = 2**16
"""Bytes that are written to a file at a time: of many shards, a part has little for each."""


def write_corpus(
    folder: Path,
    parts: Iterable[tuple[int, TokenStore]],
    *,
    num_shards: int,
    vocab_size: int,
    num_sources: int,
) -> None:
    """Writes a corpus, one part at a time, into an existing folder.

    Files and checksums do not depend on how the corpus is divided into parts.

    Args:
        folder: Where to write.
        parts: The corpus, source by source: the number of the source and some of its pairs.
        num_shards: Number of shards, at most the number of pairs.
        vocab_size: Number of token ids.
        num_sources: Number of data sources.
    """
    dtype, names = token_type(vocab_size), range(1, num_shards + 1)
    writers = [
        _ShardWriter(folder / f"shard-{name:05}-of-{num_shards:05}", dtype, num_sources)
        for name in names
    ]
    shard_of_next = _random_shards(num_shards)
    for source, pairs in parts:
        shards = np.fromiter(islice(shard_of_next, len(pairs)), np.int32, len(pairs))
        order = np.argsort(shards, kind="stable")
        bounds = np.searchsorted(shards[order], np.arange(num_shards + 1)).tolist()
        by_shard = pairs.select(order)
        for writer, (start, stop) in zip(writers, pairwise(bounds), strict=True):
            writer.append(source, by_shard, start, stop)
    max_length = max(writer.max_length for writer in writers)
    for writer in writers:
        writer.finish(max_length)


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

    def __init__(self, folder: Path, dtype: np.dtype[Any], num_sources: int):
        self.max_length = 0
        self._folder, self._dtype = folder, dtype
        self._source_sizes = [0] * num_sources
        self._num_tokens = {"src": 0, "tgt": 0}
        self._unwritten = {name: bytearray() for name in ARRAYS}
        folder.mkdir()
        for name in self._num_tokens:
            self._write(f"{name}.offsets", np.zeros(1, np.int64))

    def append(self, source: int, pairs: TokenStore, start: int, stop: int) -> None:
        """Adds the pairs from ``start`` to ``stop - 1``, which are from one data source."""
        for name, side in (("src", pairs.src), ("tgt", pairs.tgt)):
            bounds = side.offsets[start : stop + 1]
            self._write(f"{name}.tokens", side.tokens[bounds[0] : bounds[-1]].astype(self._dtype))
            self._write(f"{name}.offsets", bounds[1:] - bounds[0] + self._num_tokens[name])
            self._num_tokens[name] += int(bounds[-1] - bounds[0])
            self.max_length = max(self.max_length, int(np.diff(bounds).max(initial=0)))
        self._source_sizes[source] += stop - start

    def finish(self, max_length: int) -> None:
        """Writes the header, with the length of the longest sequence of all shards."""
        for name in ARRAYS:
            self._flush(name)
        meta = {
            "format": FORMAT,
            "dtype": self._dtype.name,
            "tokens": self._num_tokens,
            "longest": max_length,
            "sources": self._source_sizes,
            "sha256": checksum(self._folder),
        }
        (self._folder / "meta.json").write_text(json.dumps(meta))

    def _write(self, name: str, array: npt.NDArray[Any]) -> None:
        self._unwritten[name] += array.tobytes()
        if len(self._unwritten[name]) >= _BUFFER_BYTES:
            self._flush(name)

    def _flush(self, name: str) -> None:
        with (self._folder / name).open("ab") as file:
            file.write(self._unwritten[name])
        self._unwritten[name].clear()
