"""The plan of a corpus in shards: every pair once, wherever and by whomever it is read."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error
from support.polling import wait_until
from support.stores import epoch_of, flip_bit, numbered_corpus

from transformer_mt.config import DataConfig, SourceConfig
from transformer_mt.data.batching.plan import GlobalBatch, epoch_weights
from transformer_mt.data.batching.sharded_plan import ShardedPlan
from transformer_mt.data.store.token_store import Corpus, TokenStore
from transformer_mt.errors import InputError

BATCH_TOKENS = 60


def random_corpus(folder: Path, seed: int, pairs: int, num_shards: int, *sizes: int) -> Corpus:
    """Pairs of up to 15 tokens, whose mean length changes every 20 pairs."""
    rng = np.random.default_rng(seed)
    longest = np.repeat(rng.integers(2, 16, -(-pairs // 20)), 20)[:pairs]
    lengths = np.stack([rng.integers(1, longest + 1), rng.integers(1, longest + 1)])
    return numbered_corpus(folder, lengths, num_shards, *sizes)


def pairs_of(update: GlobalBatch) -> Any:
    """The numbers of the pairs of an update."""
    src = update.store.src
    return src.tokens[src.offsets[np.concatenate(update.chunks)]]


cases = st.tuples(st.integers(0, 2**63 - 1), st.integers(50, 300), st.integers(1, 12))


@given(cases, st.integers(1, 200), st.data())
def test_an_epoch_has_each_pair_once_for_any_number_of_shards_and_order_of_reading(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[int, int, int],
    batch_tokens: int,
    data: st.DataObject,
) -> None:
    seed, pairs, num_shards = case
    corpus = random_corpus(tmp_path_factory.mktemp("corpus"), seed % 1000, pairs, num_shards)
    assert (corpus.source_sizes.sum(), len(corpus.shards)) == (pairs, num_shards)
    plan, other = (ShardedPlan(corpus, batch_tokens, seed) for _ in range(2))
    found = []
    for epoch in range(3):
        seen: list[int] = []
        for batch in epoch_of(plan, epoch):
            whole = np.concatenate(batch.chunks)
            assert len(whole)
            assert batch.num_targets == batch.store.tgt.lengths[whole].sum()
            found.append(pairs_of(batch).tolist())
            seen += found[-1]
        assert sorted(seen) == list(range(pairs))
    for step in data.draw(st.lists(st.integers(0, len(found) - 1), min_size=2, max_size=4)):
        assert pairs_of(other[step]).tolist() == found[step]


@given(cases, st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 7.75]), min_size=3, max_size=3))
def test_a_pair_occurs_as_often_as_its_source_weighs(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[int, int, int], weights: list[float]
) -> None:
    seed, _, num_shards = case
    sizes = 8 * num_shards, 20 * num_shards, 4 * num_shards  # whole numbers in every shard
    folder = tmp_path_factory.mktemp("corpus")
    corpus = random_corpus(folder, seed % 1000, sum(sizes), num_shards, *sizes)
    plan = ShardedPlan(corpus, BATCH_TOKENS, seed, weights)
    epochs = np.zeros((4, sum(sizes)), np.int64)
    for epoch in range(4):
        for update in epoch_of(plan, epoch):
            np.add.at(epochs[epoch], pairs_of(update), 1)
    for times, weight in zip(np.split(epochs, np.cumsum(sizes)[:-1], axis=1), weights, strict=True):
        assert times.min() >= int(weight)
        assert times.max() <= np.ceil(weight)
        assert (times.sum(axis=1) == weight * times.shape[1]).all()


def test_every_epoch_has_other_updates(tmp_path: Path) -> None:
    plan = ShardedPlan(random_corpus(tmp_path, 0, 900, 3), BATCH_TOKENS, 1)
    first, second = (
        {tuple(np.sort(pairs_of(update))) for update in epoch_of(plan, epoch)} for epoch in range(2)
    )
    assert len(first & second) < 0.1 * len(first)


def test_a_source_of_weight_0_occurs_in_no_shard(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, 1, 400, 7, 397, 3)
    plan = ShardedPlan(corpus, BATCH_TOKENS, 1, [0, 1])
    pairs = np.sort(np.concatenate([pairs_of(update) for update in epoch_of(plan)]))
    assert pairs.tolist() == [397, 398, 399]


def test_the_next_shard_is_read_while_one_is_trained_on(tmp_path: Path) -> None:
    """Although no update of it was asked for; the others are not."""
    corpus = random_corpus(tmp_path, 0, 900, 9)
    with patch.object(TokenStore, "load", side_effect=TokenStore.load) as load:
        assert ShardedPlan(corpus, BATCH_TOKENS, 1)[0]
        wait_until(lambda: load.call_count == 2)


def test_a_damaged_shard_is_reported_before_it_is_read(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, 0, 900, 9)
    plan = ShardedPlan(corpus, BATCH_TOKENS, 1)
    expected = [pairs_of(update).tolist() for update in epoch_of(plan)]
    flip_bit(corpus.shards[4] / "tgt.tokens")
    intact, errors = 0, set()
    plan = ShardedPlan(Corpus.load(tmp_path), BATCH_TOKENS, 1)
    for step, pairs in enumerate(expected):
        try:
            assert pairs_of(plan[step]).tolist() == pairs
            intact += 1
        except InputError as error:
            errors.add(str(error))
    assert intact > 0.8 * len(expected)
    (message,) = errors
    assert f"{tmp_path}/shard-00005-of-00009 is damaged: its checksum" in message


SIZES = [1000, 200, 50]


def config(**settings: Any) -> DataConfig:
    sources = [SourceConfig(sample="train") for _ in SIZES]
    return DataConfig(src_lang="en", tgt_lang="de", train=sources, valid=sources[:1], **settings)


def test_given_weights_are_used_unchanged() -> None:
    assert epoch_weights(config(), SIZES, SIZES) == []  # each pair once
    assert epoch_weights(config(weights=[1, 0.5, 4]), SIZES, SIZES) == [1, 0.5, 4]
    assert epoch_weights(config(weights=[1, 0.5, 4]), [10, 0, 5], [10, 0, 5]) == [1, 0.0, 4]
    assert epoch_weights(config(), [10, 0, 5], [10, 0, 5]) == []
    assert epoch_weights(config(weights=[1, 0.5, 1e-9]), SIZES, SIZES) == [1, 0.5, 1 / 50]
    with input_error(r"make an epoch of 1e\+10 pairs from 1,250: "):
        epoch_weights(config(weights=[1e7, 500, 1e-9]), SIZES, SIZES)
    assert epoch_weights(config(weights=[1, 1, 1000]), SIZES, SIZES) == [1, 1, 1000]
