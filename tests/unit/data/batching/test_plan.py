"""The plan of global batches, and its division into micro-batches and ranks."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import FIRST, epoch_of, numbered_store, store_of, store_of_lengths

from transformer_mt.batch import IGNORE_INDEX, Batch, Buckets
from transformer_mt.data.batching import micro_batches as module
from transformer_mt.data.batching.micro_batches import collate, micro_batches
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch, equal_chunk_boundaries
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD


@st.composite
def stores(draw: st.DrawFn, max_pairs: int = 60) -> TokenStore:
    """Random stores; the first source token of a pair is its index plus ``FIRST``."""
    lengths = st.tuples(st.integers(2, 12), st.integers(1, 12))
    return numbered_store(draw(st.lists(lengths, min_size=1, max_size=max_pairs)))


def indices(batch: GlobalBatch) -> list[int]:
    return [int(i) for chunk in batch.chunks for i in chunk]


def pairs_in(batch: Batch) -> list[int]:
    """Indices of a batch's pairs, from their first source tokens."""
    starts = batch.src.tokens[batch.src.positions == 0]
    return [int(token) - FIRST for token in starts if token != PAD]


@given(
    stores(),
    st.integers(1, 120),
    st.integers(0, 2**63 - 1),
    st.integers(0, 5),
    st.sampled_from([1, 2]),
)
def test_an_epoch_has_each_pair_once_in_batches_of_limited_size(
    store: TokenStore, batch_tokens: int, seed: int, epoch: int, times: int
) -> None:
    store = dataclasses.replace(store, source_sizes=(len(store),))
    plan = BatchPlan(store, batch_tokens, seed, [times])
    batches = epoch_of(plan, epoch)
    seen = sorted(i for batch in batches for i in indices(batch))
    assert seen == sorted([*range(len(store))] * times)
    for batch in batches:
        targets = sum(int(store.tgt.lengths[i]) for i in indices(batch))
        assert batch.num_targets == targets
        if targets > batch_tokens:
            assert len(indices(batch)) == 1


@pytest.mark.parametrize("batch_tokens", [20, 500, 2000])
def test_batches_of_long_pairs_are_mostly_full(batch_tokens: int) -> None:
    lengths = np.random.default_rng(0).integers(180, 268, 160)
    plan = BatchPlan(store_of_lengths(lengths, lengths), batch_tokens, 1)
    targets = [batch.num_targets for batch in epoch_of(plan)]
    assert max(targets) <= max(batch_tokens, 267)
    assert np.mean(targets) > 0.6 * batch_tokens


@given(stores(), st.integers(1, 120), st.integers(0, 99), st.integers(1, 9), st.integers(1, 60))
def test_the_micro_batches_of_all_ranks_make_up_the_global_batch(
    store: TokenStore, batch_tokens: int, seed: int, world_size: int, max_tokens: int
) -> None:
    for batch in epoch_of(BatchPlan(store, batch_tokens, seed)):
        shares: list[list[int]] = []
        targets = 0
        for rank in range(world_size):
            shares.append([])
            parts = micro_batches(batch, max_tokens, rank, world_size)
            if (parts[0].tgt_out == IGNORE_INDEX).all():  # an empty share
                assert len(parts) == 1
                continue
            for part in parts:
                pairs = pairs_in(part)
                shares[rank] += pairs
                sides = [
                    int((x != padding).sum())
                    for x, padding in ((part.src.tokens, PAD), (part.tgt_out, IGNORE_INDEX))
                ]
                targets += sides[1]
                assert max(sides) <= max_tokens or len(pairs) == 1
        assert sorted(i for share in shares for i in share) == sorted(indices(batch))
        assert targets == batch.num_targets
        counts = list(map(len, shares))
        assert max(counts) - min(counts) <= 1


def test_a_batch_mixes_chunks_of_similar_lengths() -> None:
    drawn = np.random.default_rng(0).integers(2, 13, (2, 2000))
    store = dataclasses.replace(store_of_lengths(*drawn), source_sizes=(1500, 500))
    lengths = np.maximum(store.src.lengths, store.tgt.lengths)
    batches = epoch_of(BatchPlan(store, 400, 1, [0.5, 3]))
    within = [np.ptp(lengths[chunk]) for batch in batches for chunk in batch.chunks]
    across = [np.ptp(lengths[indices(batch)]) for batch in batches]
    assert max(within) <= 2
    assert np.mean(across) > 5
    # §5.1: similar numbers of target tokens in every update, except in the last, partial one: a
    # chunk lacks at most the pair that did not fit.
    assert sorted(batch.num_targets for batch in batches)[1] > 400 - 8 * 12


def test_collate_packs_buckets_and_shifts_targets_right(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = (
        ([10, 11, EOS], [20, 21, EOS]),
        ([12, EOS], [EOS]),
        ([13, 14, 15, EOS], [22, 23, 24, EOS]),
    )
    monkeypatch.setattr(module, "_LENGTHS", (2, 4))
    monkeypatch.setattr(module, "_BUCKET_COST", 0)
    batch = collate(store_of(pairs), np.array([2, 0, 1]))
    assert batch.src.tokens.tolist() == [12, EOS, 13, 14, 15, EOS, 10, 11, EOS, 0]
    assert batch.src.positions.tolist() == [0, 1, 0, 1, 2, 3, 0, 1, 2, 0]
    assert batch.tgt_in.tokens.tolist() == [BOS, BOS, 22, 23, 24, BOS, 20, 21, 0]
    assert batch.tgt_in.positions.tolist() == [0, 0, 1, 2, 3, 0, 1, 2, 0]
    assert batch.tgt_out.tolist() == [EOS, 22, 23, 24, EOS, 20, 21, EOS, IGNORE_INDEX]
    assert isinstance(batch.src.boundaries, Buckets)
    boundaries = batch.src.boundaries
    first, second = boundaries.buckets
    assert (first.num_sequences, first.max_length) == (2, 2)
    assert (second.num_sequences, second.max_length) == (3, 4)
    assert first.mask is not None
    assert second.mask is not None
    assert first.mask.tolist() == [[True] * 2, [True, False]]
    assert second.mask.tolist() == [[True] * 4, [True] * 3 + [False], [True] + [False] * 3]
    assert boundaries.unpad_indices.tolist() == [0, 1, 4, 5, 6, 7, 8, 9, 10, 2]
    assert boundaries.pad_indices.tolist() == [0, 1, *[9] * 2, 2, 3, 4, 5, 6, 7, 8, *[9] * 5]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.data())
def test_equal_chunks_differ_by_less_than_a_pair(lengths: list[int], data: st.DataObject) -> None:
    num_chunks = data.draw(st.integers(1, len(lengths)))
    boundaries = equal_chunk_boundaries(np.array(lengths, np.uint8), num_chunks).tolist()
    assert len(boundaries) == num_chunks + 1
    assert (boundaries[0], boundaries[-1]) == (0, len(lengths))
    assert all(a < b for a, b in pairwise(boundaries))
    mean = sum(lengths) / num_chunks
    if max(lengths) <= mean:  # otherwise a pair may fill a chunk, and the next be nearly empty
        sums = [sum(lengths[a:b]) for a, b in pairwise(boundaries)]
        assert max(abs(total - mean) for total in sums) <= max(lengths)
