"""Token stores for tests, and the updates of their plans."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.batching.sharded_plan import ShardedPlan
from transformer_mt.data.store.token_store import Corpus, Side, TokenStore, write_corpus
from transformer_mt.data.subwords.tokenizer import EOS

FIRST = 4
"""The ids below are special."""


def store_of(pairs: Iterable[tuple[list[int], list[int]]]) -> TokenStore:
    """A store of the given source and target sequences."""
    rows = [*pairs]
    src, tgt = (Side.from_lists([row[side] for row in rows]) for side in (0, 1))
    return TokenStore(src, tgt)


def rows(side: Side) -> list[list[int]]:
    """The sequences of one side of a store."""
    return [side[i].tolist() for i in range(len(side))]


def numbered_store(lengths: Iterable[tuple[int, int]]) -> TokenStore:
    """Pairs of these lengths; every token but the last is the number of the pair plus ``FIRST``."""
    return store_of(
        ([*[FIRST + i] * (src - 1), EOS], [*[FIRST + i] * (tgt - 1), EOS])
        for i, (src, tgt) in enumerate(lengths)
    )


def epoch_of(plan: BatchPlan | ShardedPlan, epoch: int = 0) -> list[GlobalBatch]:
    """The updates of an epoch."""
    return [plan[epoch * plan.steps_per_epoch + i] for i in range(plan.steps_per_epoch)]


def flip_bit(path: Path) -> None:
    """Damages the byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def random_store(pairs: int, vocab_size: int) -> TokenStore:
    """A store of random pairs of up to eight tokens, of which the last is the end (3)."""
    rng = np.random.default_rng(pairs)

    def side() -> list[list[int]]:
        lengths = rng.integers(1, 9, pairs)
        return [[*rng.integers(4, vocab_size, n - 1).tolist(), 3] for n in lengths]

    return store_of(zip(side(), side(), strict=True))


def one_shard(store: TokenStore) -> Corpus:
    """A corpus of one shard."""
    sizes = np.array([store.source_sizes or [len(store)]])
    return Corpus(store, sizes, sizes)  # tokens of sources matter to many shards only


def numbered_corpus(
    folder: Path, lengths: npt.NDArray[np.int64], num_shards: int, *sizes: int
) -> Corpus:
    """Writes and loads a corpus of pairs that begin with their number, on both sides.

    Args:
        folder: Folder to write.
        lengths: [2, pairs] source and target lengths.
        num_shards: Number of shards.
        sizes: Number of pairs of each source; one source by default.
    """
    starts = np.cumsum([0, *(sizes or lengths.shape[1:])]).tolist()
    parts = []
    for source, (first, last) in enumerate(pairwise(starts)):
        rows = lengths[:, first:last].astype(np.int32)
        src, tgt = (Side.from_lengths(np.full(row.sum(), 7, np.uint32), row) for row in rows)
        for side in (src, tgt):
            side.tokens[side.offsets[:-1]] = np.arange(first, last)
        parts.append((source, TokenStore(src, tgt)))
    folder.mkdir(exist_ok=True)
    write_corpus(
        folder, parts, num_shards=num_shards, vocab_size=2**20, num_sources=len(starts) - 1
    )
    return Corpus.load(folder)


def store_of_lengths(*lengths: npt.NDArray[np.int64]) -> TokenStore:
    """A store of sequences of the given source and target lengths; every token is 7.

    The tokens take no memory.
    """
    sides = []
    for side in lengths:
        offsets = np.concatenate([[0], np.cumsum(side)])
        sides.append(Side(np.broadcast_to(np.uint16(7), offsets[-1:]), offsets))
    src, tgt = sides
    return TokenStore(src, tgt)


def realistic_lengths(seed: int, pairs: int, max_length: int = 100) -> npt.NDArray[np.int64]:
    """[2, pairs] lengths of source and target like those of WMT's training data."""
    rng = np.random.default_rng(seed)
    src = np.clip(rng.lognormal(3, 0.6, pairs), 2, max_length).astype(np.int64)
    tgt = np.clip(src * rng.lognormal(0.05, 0.2, pairs), 2, max_length).astype(np.int64)
    return np.stack([src, tgt])
