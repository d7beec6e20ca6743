"""Fixed-shape buffers contain each pair once, and little padding."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import epoch_of, numbered_store, realistic_lengths, store_of_lengths

from transformer_mt.batch import IGNORE_INDEX, Batch, CuSeqlens, Packed
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.batching.static_batches import (
    BufferShape,
    buffered_batches,
    fill,
    plan_buffers,
)
from transformer_mt.data.subwords.tokenizer import BOS


def sequences(packed: Packed) -> list[list[int]]:
    """The sequences of a buffer, dummies included, by its cumulative sequence lengths."""
    assert isinstance(packed.boundaries, CuSeqlens)
    cu_seqlens = packed.boundaries.cu_seqlens.tolist()
    tokens = packed.tokens.tolist()
    return [tokens[a:b] for a, b in pairwise(cu_seqlens)]


def check(batch: Batch, shape: BufferShape) -> list[tuple[list[int], list[int]]]:
    """Checks a buffer's invariants; returns its real pairs."""
    assert batch.src.tokens.shape == (shape.src_tokens,)
    assert batch.tgt_in.tokens.shape == batch.tgt_out.shape == (shape.tgt_tokens,)
    src, tgt = sequences(batch.src), sequences(batch.tgt_in)
    assert len(src) == len(tgt)
    assert sum(map(len, src)) == shape.src_tokens
    assert sum(map(len, tgt)) == shape.tgt_tokens
    out = batch.tgt_out.split([len(t) for t in tgt])
    pairs = []
    for s, t, o in zip(src, tgt, out, strict=True):
        assert max(len(s), len(t)) <= shape.max_length
        assert s  # attention never gets an empty sequence
        assert t
        if o[0] != IGNORE_INDEX:
            assert t == [BOS, *o[:-1].tolist()]
            pairs.append((s, o.tolist()))
        else:
            assert (o == IGNORE_INDEX).all()
    for packed, side in zip((batch.src, batch.tgt_in), zip(*pairs, strict=True), strict=False):
        # Dummies may be longer than the table of learned positions.
        positions = [position for tokens in side for position in range(len(tokens))]
        padding = [0] * (len(packed.positions) - len(positions))
        assert packed.positions.tolist() == positions + padding
    return pairs


LENGTHS = st.lists(st.tuples(st.integers(2, 90), st.integers(2, 90)), min_size=1, max_size=60)


@given(LENGTHS, st.integers(1, 2000), st.integers(90, 1000), st.integers(1, 3))
def test_each_pair_of_an_update_is_on_exactly_one_rank(
    lengths: list[tuple[int, int]], batch_tokens: int, max_tokens: int, world_size: int
) -> None:
    store = numbered_store(lengths)
    plan = BatchPlan(store, batch_tokens, 1)
    shape = plan_buffers(plan, store.max_length, max_tokens, world_size)
    for batch in epoch_of(plan) + epoch_of(plan, 1):
        found = []
        for rank in range(world_size):
            buffers = buffered_batches(batch, shape, rank, world_size)
            assert buffers  # every rank takes part
            found += [pair for buffer in buffers for pair in check(buffer, shape)]
        wanted = [i for chunk in batch.chunks for i in chunk.tolist()]
        assert sorted(found) == sorted((list(store.src[i]), list(store.tgt[i])) for i in wanted)
        assert sum(len(tgt) for _, tgt in found) == batch.num_targets


@pytest.mark.parametrize(("world_size", "waste"), [(1, 0.03), (8, 0.05)])
def test_little_of_a_buffer_is_padding(world_size: int, waste: float) -> None:
    store = store_of_lengths(*realistic_lengths(0, 200_000, 250))
    plan = BatchPlan(store, 25_000, 1)
    shape = plan_buffers(plan, store.max_length, 30_000, world_size)
    assert max(shape.src_tokens, shape.tgt_tokens) <= 30_000
    used, room = np.zeros(2), np.zeros(2)
    # Not the steps that determine the sizes, and not the last, partial update. One may be split.
    updates = [plan[plan.steps_per_epoch + i] for i in range(60)]
    for update in [update for update in updates if update.num_targets > 20_000]:
        for rank in range(world_size):
            for buffer in buffered_batches(update, shape, rank, world_size):
                used += [int((buffer.src.tokens == 7).sum()), int((buffer.tgt_out == 7).sum())]
                room += [shape.src_tokens, shape.tgt_tokens]
    assert 1 - used.sum() / room.sum() < waste


def test_a_token_limit_near_the_longest_pair_still_packs_several_pairs() -> None:
    """The smallest buffer is larger than the limit by the room for dummies."""
    store = numbered_store([(128, 128)] * 40 + [(9, 9)] * 400)
    shape = plan_buffers(BatchPlan(store, 2000, 1), store.max_length, 128)
    assert shape.src_tokens == shape.tgt_tokens == 192
    assert shape.parts < 30


def test_pairs_that_do_not_fit_are_split_over_two_buffers() -> None:
    store = numbered_store([(10, 10)] * 8)
    shape = BufferShape(src_tokens=64, tgt_tokens=64, max_length=64, parts=1)
    buffers = fill(store, np.arange(8), shape)
    assert [len(check(buffer, shape)) for buffer in buffers] == [4, 4]
