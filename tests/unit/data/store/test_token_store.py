"""The token store and its shards: round trips, memory mapping, checksums, detection of damage."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error
from support.stores import flip_bit, numbered_corpus, rows, store_of

from transformer_mt.data.store.token_store import Corpus, TokenStore, write_corpus

FILES = ["src.tokens", "src.offsets", "tgt.tokens", "tgt.offsets"]
Pairs = list[tuple[list[int], list[int]]]

PAIRS: Pairs = [([5, 6, 3], [7, 3]), ([3], [8, 9, 10, 3]), ([4, 3], [3])]


def write(
    folder: Path, *parts: Pairs, vocab_size: int = 100, sources: Sequence[int] = (0,) * 9
) -> Path:
    """Writes a corpus of three data sources in one shard, whose folder it returns."""
    folder.mkdir(exist_ok=True)
    stores = [(source, store_of(pairs)) for source, pairs in zip(sources, parts, strict=False)]
    write_corpus(folder, stores, num_shards=1, vocab_size=vocab_size, num_sources=3)
    return folder / "shard-00001-of-00001"


TOKENS = st.lists(st.integers(0, 65_535), min_size=1, max_size=6)


@given(
    batches=st.lists(st.lists(st.tuples(TOKENS, TOKENS), max_size=5), max_size=5).filter(any),
    vocab_size=st.sampled_from([65_536, 65_537]),
)
def test_round_trip(
    batches: list[Pairs], vocab_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    sources = sorted(len(batch) % 3 for batch in batches)
    loaded = TokenStore.load(write(folder, *batches, vocab_size=vocab_size, sources=sources))
    for source, size in enumerate(loaded.source_sizes):
        parts = zip(sources, batches, strict=True)
        assert size == sum(len(part) for number, part in parts if number == source)
    pairs = [pair for batch in batches for pair in batch]
    assert len(loaded) == len(pairs)
    for number, side in enumerate((loaded.src, loaded.tgt)):
        assert rows(side) == [pair[number] for pair in pairs]
        assert side.lengths.tolist() == [len(pair[number]) for pair in pairs]
    assert loaded.max_length == max(len(side) for pair in pairs for side in pair)


@pytest.mark.parametrize(
    ("vocab_size", "bytes_a_token", "largest"),
    [(100, 2, 99), (65_536, 2, 65_535), (65_537, 4, 65_536), (2**32, 4, 2**32 - 1)],
)
def test_tokens_use_the_smallest_dtype_for_the_vocabulary(
    tmp_path: Path, vocab_size: int, bytes_a_token: int, largest: int
) -> None:
    shard = write(tmp_path, [([largest, 3], [3])], vocab_size=vocab_size)
    assert (shard / "src.tokens").stat().st_size == 2 * bytes_a_token
    assert TokenStore.load(shard).src[0].tolist() == [largest, 3]


def test_a_loaded_store_is_memory_mapped_and_gathers_in_any_order(tmp_path: Path) -> None:
    side = TokenStore.load(write(tmp_path, PAIRS)).tgt
    for array in (side.tokens, side.offsets):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable
    assert side.lengths.dtype == np.int32  # a corpus has many
    tokens, lengths = side.gather(np.array([2, 0, 1, 0]))
    assert tokens.tolist() == [3, 7, 3, 8, 9, 10, 3, 7, 3]
    assert lengths.tolist() == [1, 2, 4, 2]


def test_the_checksum_is_that_of_the_pairs(tmp_path: Path) -> None:
    moved = [([5, 6, 3], [7]), ([3], [3, 8, 9, 10, 3]), ([4, 3], [3])]  # with other boundaries
    different = [PAIRS, PAIRS[:2], [(tgt, src) for src, tgt in PAIRS], moved]
    folders = [write(tmp_path / str(number), pairs) for number, pairs in enumerate(different)]
    checksums = [TokenStore.load(folder).fingerprint for folder in folders]
    assert len(set(checksums)) == len(different)
    contents = [(folders[0] / name).read_bytes() for name in FILES]
    digests = b"".join(hashlib.sha256(content).digest() for content in contents)
    assert checksums[0] == hashlib.sha256(digests).hexdigest()


def truncate(name: str, keep: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:keep])

    return damage


DAMAGES = {
    **{f"a bit of {name}": lambda folder, name=name: flip_bit(folder / name) for name in FILES},
    "tokens cut short": truncate("src.tokens", 10),
    "offsets cut inside a number": truncate("tgt.offsets", 11),
    "no tokens": lambda folder: (folder / "src.tokens").unlink(),
    "interrupted": lambda folder: (folder / "meta.json").unlink(),
    "meta.json cut": truncate("meta.json", 20),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_store_is_reported_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    shard = write(tmp_path, PAIRS)
    assert Corpus.load(tmp_path).source_sizes.sum() == 3
    damage(shard)
    with input_error(f"{shard}.*(delete {tmp_path}|No such file)"):
        Corpus.load(tmp_path).sample.verify()


# --- a corpus in shards: every pair is in one of them ---

SIZES = (500, 0, 120, 7)
LENGTHS = np.random.default_rng(0).integers(1, 9, (2, sum(SIZES)))


def in_shards(folder: Path, num_shards: int) -> Corpus:
    return numbered_corpus(folder, LENGTHS, num_shards, *SIZES)


def numbers(store: TokenStore) -> list[int]:
    """The number of each pair, from its first tokens."""
    both = [[int(side[i][0]) for i in range(len(store))] for side in (store.src, store.tgt)]
    assert both[0] == both[1]
    return both[0]


@pytest.mark.parametrize("num_shards", [1, 2, 7, 150])
def test_every_pair_is_in_one_shard(tmp_path: Path, num_shards: int) -> None:
    corpus = in_shards(tmp_path, num_shards)
    assert (corpus.source_sizes.sum(), len(corpus.shards)) == (sum(SIZES), num_shards)
    assert corpus.source_sizes.sum(axis=0).tolist() == list(SIZES)
    seen = []
    starts = np.cumsum([0, *SIZES])
    for number, shard in enumerate(corpus.shards):
        store = TokenStore.load(shard)
        store.verify()
        pairs = numbers(store)
        assert pairs == sorted(pairs)  # source by source
        assert abs(len(pairs) - sum(SIZES) / num_shards) < 1
        assert store.source_sizes == tuple(np.histogram(pairs, starts)[0])
        by_source = np.split(store.tgt.lengths, np.cumsum(store.source_sizes)[:-1])
        assert corpus.source_tokens[number].tolist() == [part.sum() for part in by_source]
        seen += pairs
    assert sorted(seen) == list(range(sum(SIZES)))


def test_a_missing_shard_is_reported(tmp_path: Path) -> None:
    corpus = in_shards(tmp_path, 3)
    for shard in reversed(corpus.shards):
        shutil.rmtree(shard)
        with input_error("lacks shards of the corpus: delete"):
            Corpus.load(shard.parent)
