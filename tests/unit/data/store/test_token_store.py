"""The token store: round trips, memory mapping, checksums, and detection of damage."""

import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import store_of_lengths

from transformer_mt.data.store import token_store
from transformer_mt.data.store.blocks import BLOCK_PAIRS, Advice
from transformer_mt.data.store.token_store import EncodedPairs, Side, TokenStore
from transformer_mt.errors import InputError

KINDS = ("tokens", "offsets")
Pairs = list[tuple[list[int], list[int]]]

PAIRS: Pairs = [([5, 6, 3], [7, 3]), ([3], [8, 9, 10, 3]), ([4, 3], [3])]


def parts(*batches: Pairs) -> Iterator[EncodedPairs]:
    for batch in batches:
        src, tgt = (Side.from_lists([pair[side] for pair in batch]) for side in (0, 1))
        yield EncodedPairs(src, tgt)


@given(
    batches=st.lists(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 65_535), max_size=6),
                st.lists(st.integers(0, 65_535), max_size=6),
            ),
            max_size=5,
        ),
        max_size=5,
    ),
    vocab_size=st.sampled_from([65_536, 65_537, 2**31]),
)
def test_round_trip(
    batches: list[list[tuple[list[int], list[int]]]],
    vocab_size: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    token_store.write(folder, parts(*batches), vocab_size, source_sizes=[2, 0, 1])
    loaded = TokenStore.load(folder)
    assert loaded.source_sizes == (2, 0, 1)
    pairs = [pair for batch in batches for pair in batch]
    assert len(loaded) == len(pairs)
    for i, (src, tgt) in enumerate(pairs):
        assert loaded.src[i].tolist() == src
        assert loaded.tgt[i].tolist() == tgt
    assert loaded.src.lengths.tolist() == [len(src) for src, _ in pairs]
    assert loaded.tgt.lengths.tolist() == [len(tgt) for _, tgt in pairs]


@pytest.mark.parametrize(
    ("vocab_size", "bytes_a_token", "largest"),
    [(100, 2, 99), (65_536, 2, 65_535), (65_537, 4, 65_536), (2**32, 4, 2**32 - 1)],
)
def test_tokens_use_the_smallest_dtype_for_the_vocabulary(
    tmp_path: Path, vocab_size: int, bytes_a_token: int, largest: int
) -> None:
    token_store.write(tmp_path, parts([([largest, 3], [3])]), vocab_size)
    assert (tmp_path / "src.tokens").stat().st_size == 2 * bytes_a_token
    assert TokenStore.load(tmp_path).src[0].tolist() == [largest, 3]


def test_location_of_a_pair(tmp_path: Path) -> None:
    one, two = parts(PAIRS[:2], PAIRS[2:])
    lines = [np.array([3, 4_000_000_000], np.uint32), np.array([7], np.uint32)]
    numbered = (part._replace(line_numbers=n) for part, n in zip((one, two), lines, strict=True))
    names = ["/data/a.en.gz", "never", "wmt/wmt14"]
    token_store.write(tmp_path, numbered, 100, source_sizes=[2, 0, 1], source_names=names)
    loaded = TokenStore.load(tmp_path)
    locations = ["/data/a.en.gz:3", "/data/a.en.gz:4000000000", "wmt/wmt14:7"]
    assert [loaded.location(i) for i in range(3)] == locations
    assert (tmp_path / "lines").stat().st_size == 3 * 4
    assert isinstance(loaded.line_numbers.base, np.memmap)


def test_location_without_line_numbers(tmp_path: Path) -> None:
    token_store.write(tmp_path, parts(PAIRS), 100)
    assert TokenStore.load(tmp_path).location(2) == "pair 3"


def test_max_length(tmp_path: Path) -> None:
    token_store.write(tmp_path, parts(PAIRS[:1], PAIRS[1:]), 100)
    loaded = TokenStore.load(tmp_path)
    assert loaded.max_length == 4
    assert TokenStore(loaded.src, loaded.tgt).max_length == 4
    assert TokenStore(loaded.src, loaded.src).max_length == 3


def test_a_loaded_store_is_memory_mapped(tmp_path: Path) -> None:
    token_store.write(tmp_path, parts(PAIRS), 100)
    side = TokenStore.load(tmp_path).tgt
    for array in (side.tokens, side.offsets):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_gather_in_any_order(tmp_path: Path) -> None:
    token_store.write(tmp_path, parts(PAIRS), 100)
    tokens, lengths = TokenStore.load(tmp_path).tgt.gather(np.array([2, 0, 1, 0]))
    assert tokens.tolist() == [3, 7, 3, 8, 9, 10, 3, 7, 3]
    assert lengths.tolist() == [1, 2, 4, 2]


def test_lengths_use_four_bytes_each_without_temporaries() -> None:
    side = Side.from_lengths(np.zeros(0, np.uint16), np.arange(1_000_000, dtype=np.int32) % 100)
    tracemalloc.start()
    lengths = side.lengths
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lengths.dtype == np.int32
    assert (lengths == np.arange(1_000_000) % 100).all()
    assert peak < 4.2e6


def test_the_checksum_does_not_depend_on_the_parts(tmp_path: Path) -> None:
    different = [PAIRS[:2], [PAIRS[0], PAIRS[2]], [(tgt, src) for src, tgt in PAIRS]]
    # The same tokens with other boundaries.
    different.append([([5, 6, 3], [7]), ([3], [3, 8, 9, 10, 3]), ([4, 3], [3])])
    folders = []
    for batches in ([PAIRS], [PAIRS[:1], [], PAIRS[1:]], *([other] for other in different)):
        folders.append(tmp_path / str(len(folders)))
        folders[-1].mkdir()
        token_store.write(folders[-1], parts(*batches), 100)
    found = [TokenStore.load(folder).fingerprint for folder in folders]
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(different)
    files = [folders[0] / f"{side}.{kind}" for side in ("src", "tgt") for kind in KINDS]
    digests = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
    assert found[0] == hashlib.sha256(digests).hexdigest()


def test_a_side_in_memory_equals_a_loaded_one(tmp_path: Path) -> None:
    token_store.write(tmp_path, parts(PAIRS), 100)
    loaded = TokenStore.load(tmp_path).src
    held = Side.from_lists([src for src, _ in PAIRS])
    assert loaded.tokens.tolist() == held.tokens.tolist()
    assert loaded.offsets.tolist() == held.offsets.tolist() == [0, 3, 4, 6]
    assert len(Side.from_lists([])) == 0


def truncate(name: str, keep: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:keep])

    return damage


def meta(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "meta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def replace(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def numbered(pairs: int) -> EncodedPairs:
    """Pairs of one source token and up to five target tokens."""
    lengths = np.arange(pairs, dtype=np.int32) % 5 + 1
    src = Side.from_lengths(np.arange(pairs) % 60_000, np.ones(pairs, np.int32))
    return EncodedPairs(src, Side.from_lengths(np.arange(lengths.sum()) % 60_000, lengths))


def part_of(side: Side, start: int, stop: int) -> Side:
    return Side.from_lengths(*side.gather(np.arange(start, stop)))


def test_the_index_does_not_depend_on_the_parts(tmp_path: Path) -> None:
    pairs = 2 * BLOCK_PAIRS + 100
    whole = numbered(pairs)
    bounds = [0, 1, 10_000, 10_000, BLOCK_PAIRS, BLOCK_PAIRS + 7, pairs - 1, pairs]
    divided = [
        EncodedPairs(part_of(whole.src, a, b), part_of(whole.tgt, a, b))
        for a, b in pairwise(bounds)
    ]
    indexes = []
    for name, written in (("whole", [whole]), ("divided", divided)):
        folder = tmp_path / name
        folder.mkdir()
        token_store.write(folder, iter(written), 60_000)
        loaded = TokenStore.load(folder)
        for block in range(3):
            loaded.verify_block(block)
        indexes.append([side.index.tolist() for side in (loaded.src, loaded.tgt)])
        for side in (loaded.src, loaded.tgt):
            assert side.boundaries(BLOCK_PAIRS).tolist() == side.offsets[:-1:BLOCK_PAIRS].tolist()
    assert indexes[0] == indexes[1]
    first, tokens, offsets = indexes[0][1][1]  # the second block of the target side
    block = part_of(whole.tgt, BLOCK_PAIRS, 2 * BLOCK_PAIRS)
    assert tokens == zlib.crc32(block.tokens.astype(np.uint16).tobytes())
    assert offsets == zlib.crc32((block.offsets[1:] + first).tobytes())


def test_advice_to_the_kernel_changes_no_data(tmp_path: Path) -> None:
    token_store.write(tmp_path, iter([numbered(20_000)]), 60_000)
    side, plain = TokenStore.load(tmp_path).tgt, numbered(20_000).tgt
    for advice in Advice:
        for start, stop in ((0, 20_000), (7, 8), (19_999, 20_000), (5, 5)):
            side.advise(start, stop, advice)
            side.advise_offsets(start, stop, advice)
            plain.advise(start, stop, advice)  # in memory: no effect
        assert np.array_equal(side.tokens, plain.tokens)
        assert np.array_equal(side.offsets, plain.offsets)


def test_a_sample_has_evenly_spaced_runs(tmp_path: Path) -> None:
    store = store_of_lengths(np.full(100_000, 3), np.full(100_000, 3))
    assert store.sample(100_000).tolist() == list(range(100_000))
    sample = store.sample(6_400)
    assert len(np.unique(sample)) == len(sample) == 6_400
    assert np.count_nonzero(np.diff(sample) != 1) == 63
    assert (sample[0], sample[-1]) == (0, 99_999)


DAMAGES = {
    "tokens cut short": truncate("src.tokens", 10),
    "tokens cut inside a token": truncate("tgt.tokens", 13),
    "tokens empty": truncate("tgt.tokens", 0),
    "offsets cut short": truncate("src.offsets", 8),
    "offsets cut inside a number": truncate("tgt.offsets", 11),
    "offsets empty": truncate("tgt.offsets", 0),
    "offsets of another corpus": lambda f: np.arange(4).tofile(f / "src.offsets"),
    "no tokens": lambda folder: (folder / "src.tokens").unlink(),
    "no offsets": lambda folder: (folder / "tgt.offsets").unlink(),
    "index cut short": truncate("src.index", 0),
    "no index": lambda folder: (folder / "tgt.index").unlink(),
    "index cut inside a number": truncate("tgt.index", 11),
    "interrupted": lambda folder: (folder / "meta.json").unlink(),
    "meta.json cut": truncate("meta.json", 20),
    "meta.json empty": truncate("meta.json", 0),
    "meta.json a list": replace("meta.json", "[]"),
    "meta.json null": replace("meta.json", "null"),
    "meta.json not UTF-8": lambda f: (f / "meta.json").write_bytes(b"\xff\xfe"),
    "another format": meta(format=99),
    "a wrong number of pairs": meta(pairs=2),
    "a wrong number of tokens": meta(tokens={"src": 5, "tgt": 7}),
    "no tokens of a side": meta(tokens={"src": 6}),
    "tokens no table": meta(tokens=6),
    "another type": meta(dtype="uint32"),
    "no type": meta(dtype="nonsense"),
    "objects": meta(dtype="object", tokens={"src": 1.5, "tgt": 7}),
    "pointers": meta(dtype="object", tokens={"src": 2, "tgt": 2}),
    "no sources": meta(sources=None),
    "no names": meta(names=None),
    "no longest": meta(longest=None),
    "too many line numbers": meta(lines=1),
    "line numbers that are not there": meta(lines=3),
    "no line numbers": lambda folder: (folder / "lines").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_store_is_reported_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    token_store.write(tmp_path, parts(PAIRS), 100)
    assert len(TokenStore.load(tmp_path)) == 3
    damage(tmp_path)
    with pytest.raises(InputError) as error:
        TokenStore.load(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "delete the folder" in str(error.value)
    assert "\n" not in str(error.value)
