"""The encoded corpus on disk: flat token arrays with offsets, memory-mapped.

4.5 million pairs take about 0.6 GB, and a process holds only the pages that it reads. A corpus that
is too large for one token store has many shards. Each is a token store with a random part of the
pairs of every data source, so it has the mixture of the whole and can be planned, read and verified
by itself. Which shard a pair belongs to depends only on its number and on the number of shards.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.errors import InputError
from transformer_mt.files import how_to_rebuild, read_json, reading, sha256, write_json

FORMAT = 4
"""Version of the file format; it is part of the cache key, so other versions are built again."""

ARRAYS = ("src.tokens", "src.offsets", "tgt.tokens", "tgt.offsets")
"""Names of the files of a token store, apart from its header."""

_SEED = 5
"""Seed of the division into shards, the same in all runs, which share the encoded corpus."""

Indices = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]


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

    def gather(self, indices: Indices) -> tuple[npt.NDArray[Any], Lengths]:
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
        return np.diff(self.offsets).astype(np.int32)

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
        return cls.from_lengths(tokens, np.fromiter(map(len, sequences), np.int32))


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
    """The ``checksum`` that was recorded on disk; empty for a store in memory."""
    folder: Path | None = None
    """Folder of the store; None in memory."""

    def __len__(self) -> int:
        return len(self.tgt)

    @property
    def max_length(self) -> int:
        """Length of the longest sequence, computed at every access."""
        return max(int(side.lengths.max(initial=0)) for side in (self.src, self.tgt))

    def pair_lengths(self, indices: Indices) -> Indices:
        """[2, B] source and target lengths of the pairs at ``indices`` [B]."""
        src, tgt, ends = self.src.offsets, self.tgt.offsets, indices + 1
        return np.stack([src[ends] - src[indices], tgt[ends] - tgt[indices]])

    def select(self, indices: Indices) -> "TokenStore":
        """Copies the pairs at ``indices`` [B] into memory."""
        src, tgt = (Side.from_lengths(*side.gather(indices)) for side in (self.src, self.tgt))
        return TokenStore(src, tgt)

    @classmethod
    def load(cls, folder: Path) -> "TokenStore":
        """Memory-maps the folder of a shard; reads only the header.

        Raises:
            InputError: The folder is damaged.
        """
        with reading(folder, remedy=how_to_rebuild(folder.parent)):
            meta = read_json(folder / "meta.json", remedy=how_to_rebuild(folder.parent))
            sources, sides = tuple(meta["sources"]), dict[str, Side]()
            for name in ("src", "tgt"):
                tokens = _memory_map(folder / f"{name}.tokens", meta["dtype"], meta["tokens"][name])
                offsets = _memory_map(folder / f"{name}.offsets", "int64", sum(sources) + 1)
                sides[name] = Side(tokens, offsets)
            return cls(sides["src"], sides["tgt"], sources, meta["sha256"], folder)

    def verify(self) -> None:
        """Checks the tokens against their checksum; reads all of them, a gigabyte in about 1 s.

        Raises:
            InputError: The checksum does not match.
        """
        if self.folder is not None and checksum(self.folder) != self.fingerprint:
            remedy = how_to_rebuild(self.folder.parent)
            raise InputError(f"{self.folder} is damaged: its checksum does not match; {remedy}")


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

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Opens a folder that ``write_corpus`` has written; reads only the headers.

        Raises:
            InputError: The folder is damaged.
        """
        shards = tuple(sorted(folder.glob("shard-*")))
        if not shards or not shards[-1].name.endswith(f"-of-{len(shards):05}"):
            raise InputError(f"{folder} lacks shards of the corpus: {how_to_rebuild(folder)}")
        sizes, tokens, fingerprints = [], [], []
        for shard in shards:  # one at a time: each has four mapped files
            store = TokenStore.load(shard)
            sizes.append(store.source_sizes)
            sources = np.cumsum([0, *store.source_sizes])
            tokens.append(np.diff(store.tgt.offsets[sources]))
            fingerprints.append(store.fingerprint)
        fingerprint = fingerprints[0]
        if len(shards) > 1:
            fingerprint = hashlib.sha256("".join(fingerprints).encode()).hexdigest()
        sample = TokenStore.load(shards[0])
        return cls(sample, np.array(sizes), np.array(tokens), fingerprint, shards)


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
    with ExitStack() as files:
        writers = [
            _ShardWriter(
                folder / f"shard-{number:05}-of-{num_shards:05}",
                token_type(vocab_size),
                num_sources,
                files,
            )
            for number in range(1, num_shards + 1)
        ]
        shard_of_next = _random_shards(num_shards)
        for source, pairs in parts:
            shards = np.fromiter(islice(shard_of_next, len(pairs)), np.int32, len(pairs))
            for number, writer in enumerate(writers):
                writer.append(source, pairs.select(np.flatnonzero(shards == number)))
    for writer in writers:
        writer.finish()


def _random_shards(count: int) -> Iterator[int]:
    """The shard of each pair, in order; of as many pairs as shards, each gets one."""
    rng = np.random.default_rng(_SEED)
    while True:
        yield from rng.permuted(np.tile(np.arange(count), (1000, 1)), axis=1).ravel().tolist()


class _ShardWriter:
    """Writes a token store, one part at a time. ``meta.json`` is written last.

    Args:
        folder: The new folder of the store.
        dtype: Type of the tokens.
        num_sources: Number of data sources.
        files: Context in which the files are open.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], num_sources: int, files: ExitStack):
        self._folder, self._dtype = folder, dtype
        self._source_sizes = [0] * num_sources
        self._num_tokens = {"src": 0, "tgt": 0}
        folder.mkdir()
        self._files = {name: files.enter_context((folder / name).open("wb")) for name in ARRAYS}
        for name in self._num_tokens:
            self._files[f"{name}.offsets"].write(np.zeros(1, np.int64).tobytes())

    def append(self, source: int, pairs: TokenStore) -> None:
        """Adds pairs of one data source."""
        for name, side in (("src", pairs.src), ("tgt", pairs.tgt)):
            self._files[f"{name}.tokens"].write(side.tokens.astype(self._dtype).tobytes())
            offsets = side.offsets[1:] + self._num_tokens[name]
            self._files[f"{name}.offsets"].write(offsets.tobytes())
            self._num_tokens[name] += len(side.tokens)
        self._source_sizes[source] += len(pairs)

    def finish(self) -> None:
        """Writes the header; the files must be closed."""
        meta = {
            "format": FORMAT,
            "dtype": self._dtype.name,
            "tokens": self._num_tokens,
            "sources": self._source_sizes,
            "sha256": checksum(self._folder),
        }
        write_json(self._folder / "meta.json", meta)


def checksum(folder: Path) -> str:
    """SHA-256 of all tokens and offsets of a token store."""
    # From the files: pages that are read through the memory map would count as memory.
    digests = "".join(map(sha256, map(folder.joinpath, ARRAYS)))
    return hashlib.sha256(bytes.fromhex(digests)).hexdigest()


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype for the token ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def _memory_map(path: Path, dtype: str, size: int) -> npt.NDArray[Any]:
    # As a plain array over the mapped file: slices of np.memmap itself cost five times more.
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(size,)))
