"""The encoded corpus on disk: what is written is read, what is damaged is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.data import store
from transformer_mt.data.store import Side, TokenStore
from transformer_mt.errors import InputError

PAIRS = [([5, 6, 3], [7, 3]), ([3], [8, 9, 10, 3]), ([4, 3], [3])]


@settings(deadline=None, max_examples=60)
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
def test_what_is_written_is_read(
    batches: list[list[tuple[list[int], list[int]]]],
    vocab_size: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store.write(folder, batches, vocab_size)
    loaded = TokenStore.load(folder)
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
def test_a_token_takes_no_more_bytes_than_the_vocabulary_asks_for(
    tmp_path: Path, vocab_size: int, bytes_a_token: int, largest: int
) -> None:
    store.write(tmp_path, [[([largest, 3], [3])]], vocab_size)
    assert (tmp_path / "src.tokens").stat().st_size == 2 * bytes_a_token
    assert TokenStore.load(tmp_path).src[0].tolist() == [largest, 3]


def test_a_loaded_corpus_is_mapped_not_read(tmp_path: Path) -> None:
    store.write(tmp_path, [PAIRS], 100)
    tokens = TokenStore.load(tmp_path).tgt.tokens
    assert isinstance(tokens.base, np.memmap)
    assert not tokens.flags.writeable


def test_a_side_in_memory_is_the_same_side(tmp_path: Path) -> None:
    store.write(tmp_path, [PAIRS], 100)
    loaded = TokenStore.load(tmp_path).src
    held = Side.from_lists([src for src, _ in PAIRS])
    assert loaded.tokens.tolist() == held.tokens.tolist()
    assert loaded.offsets.tolist() == held.offsets.tolist() == [0, 3, 4, 6]
    assert len(Side.from_lists([])) == 0


def cut(name: str, keep: int) -> Callable[[Path], None]:
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


DAMAGES = {
    "tokens cut short": cut("src.tokens", 10),
    "tokens cut inside a token": cut("tgt.tokens", 13),
    "tokens empty": cut("tgt.tokens", 0),
    "lengths cut short": cut("src.lengths", 8),
    "lengths cut inside a number": cut("tgt.lengths", 11),
    "lengths empty": cut("tgt.lengths", 0),
    "lengths of another corpus": lambda f: np.array([1, 1, 1], "int32").tofile(f / "src.lengths"),
    "no tokens": lambda folder: (folder / "src.tokens").unlink(),
    "no lengths": lambda folder: (folder / "tgt.lengths").unlink(),
    "interrupted": lambda folder: (folder / "meta.json").unlink(),
    "meta.json cut": cut("meta.json", 20),
    "meta.json empty": cut("meta.json", 0),
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
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_corpus_is_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store.write(tmp_path, [PAIRS], 100)
    assert len(TokenStore.load(tmp_path)) == 3
    damage(tmp_path)
    with pytest.raises(InputError) as error:
        TokenStore.load(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "delete the folder" in str(error.value)
    assert "\n" not in str(error.value)
