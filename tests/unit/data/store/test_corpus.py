"""The corpus in shards: each has its part of every source, and every pair is in one of them."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.errors import input_error
from support.stores import numbered_corpus

from transformer_mt.data.store.token_store import Corpus, TokenStore

SIZES = (500, 0, 120, 7)


LENGTHS = np.random.default_rng(0).integers(1, 9, (2, sum(SIZES)))


def write(folder: Path, num_shards: int, cuts: Iterable[int] = ()) -> Corpus:
    return numbered_corpus(folder, LENGTHS, num_shards, *SIZES, cuts=cuts)


def numbers(store: TokenStore) -> list[int]:
    """The number of each pair, from its first tokens."""
    both = [[int(side[i][0]) for i in range(len(store))] for side in (store.src, store.tgt)]
    assert both[0] == both[1]
    return both[0]


@pytest.mark.parametrize("num_shards", [1, 2, 7, 150])
def test_every_pair_is_in_one_shard(tmp_path: Path, num_shards: int) -> None:
    corpus = write(tmp_path, num_shards)
    assert (len(corpus), len(corpus.shards)) == (sum(SIZES), num_shards)
    assert corpus.source_sizes.sum(axis=0).tolist() == list(SIZES)
    seen = []
    starts = np.cumsum([0, *SIZES])
    for number, shard in enumerate(corpus.shards):
        store = TokenStore.load(shard)
        store.verify()
        assert store.max_length == LENGTHS.max()  # of all shards
        pairs = numbers(store)
        assert pairs == sorted(pairs)  # source by source
        assert abs(len(pairs) - sum(SIZES) / num_shards) < 1
        assert store.source_sizes == tuple(np.histogram(pairs, starts)[0])
        by_source = np.split(store.tgt.lengths, np.cumsum(store.source_sizes)[:-1])
        assert corpus.source_tokens[number].tolist() == [part.sum() for part in by_source]
        seen += pairs
    assert sorted(seen) == list(range(sum(SIZES)))


def test_shards_are_random_samples_of_every_source(tmp_path: Path) -> None:
    for shard in write(tmp_path, 5).shards:
        store = TokenStore.load(shard)
        assert (abs(np.array(store.source_sizes) - np.array(SIZES) / 5) <= 1).all()
        gaps = np.diff(numbers(store))
        assert gaps.min() < 5 < gaps.max()  # not every fifth pair


def test_the_division_does_not_depend_on_the_parts(tmp_path: Path) -> None:
    contents = []
    for name, cuts in (("a", ()), ("b", range(0, 600, 7)), ("c", (499,))):
        folder = tmp_path / name
        corpus = write(folder, 4, cuts)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        contents.append([(file.relative_to(folder), file.read_bytes()) for file in files])
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == 4 * 5
    assert {path.name for path in corpus.shards} == {f"shard-{i:05}-of-00004" for i in range(1, 5)}


def test_a_missing_shard_is_reported_in_one_line(tmp_path: Path) -> None:
    corpus = write(tmp_path, 3)
    for number in (2, 0, 1):
        shutil.rmtree(corpus.shards[number])
        with input_error("a shard is missing"):
            Corpus.load(tmp_path)
