"""The plan of a large corpus by windows: every pair once, wherever and by whomever it is read."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.stores import store_of_lengths

from transformer_mt.data.batching import windowed_plan as windowed_plan_module
from transformer_mt.data.batching import windows as windows_module
from transformer_mt.data.batching.fixed_buffers import buffered_batches, plan_buffers
from transformer_mt.data.batching.micro_batches import split_batch
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch, Plan
from transformer_mt.data.batching.windowed_plan import WindowedPlan, make_plan
from transformer_mt.data.batching.windows import Windows
from transformer_mt.data.store import blocks, token_store
from transformer_mt.data.store.token_store import EncodedPairs, Side, TokenStore
from transformer_mt.errors import InputError

BATCH_TOKENS = 60
"""Four times the longest sequence of ``random_store``, or more."""


def random_store(seed: int, pairs: int, *sizes: int) -> TokenStore:
    """Pairs of up to 15 tokens, whose mean length changes every 20 pairs."""
    rng = np.random.default_rng(seed)
    longest = np.repeat(rng.integers(2, 16, -(-pairs // 20)), 20)[:pairs]
    store = store_of_lengths(rng.integers(1, longest + 1), rng.integers(1, longest + 1))
    return dataclasses.replace(store, source_sizes=sizes or (pairs,))


def long_store(seed: int, pairs: int, max_length: int = 100) -> TokenStore:
    """Pairs with lengths like those of real text."""
    rng = np.random.default_rng(seed)
    src = np.clip(rng.lognormal(3, 0.6, pairs), 2, max_length).astype(np.int64)
    tgt = np.clip(src * rng.lognormal(0.05, 0.2, pairs), 2, max_length).astype(np.int64)
    return store_of_lengths(src, tgt)


def indices(batch: GlobalBatch) -> Any:
    return np.concatenate(batch.chunks)


def epoch_of(plan: Plan, epoch: int) -> list[GlobalBatch]:
    return [plan[epoch * plan.steps_per_epoch + i] for i in range(plan.steps_per_epoch)]


def windows_of(plan: Plan, epoch: int = 0) -> list[Any]:
    """Indices of the pairs of each window, in order of their updates."""
    pairs = [indices(batch) for batch in epoch_of(plan, epoch)]
    size = plan.steps_per_epoch // plan.num_windows
    return [np.concatenate(pairs[i : i + size]) for i in range(0, len(pairs), size)]


def test_a_source_of_a_tiny_weight_needs_no_memory() -> None:
    store = random_store(1, 400, 50, 350)
    with closing(make_plan(store, BATCH_TOKENS, 1, [1e-300, 1], window_pairs=10)) as plan:
        assert plan.num_windows > 1
        pairs = np.sort(np.concatenate([indices(batch) for batch in epoch_of(plan, 0)]))
    assert pairs.tolist() == list(range(50, 400))


sizes = st.tuples(st.integers(0, 2**63 - 1), st.integers(200, 600), st.integers(1, 400))


@given(sizes, st.integers(0, 6), st.integers(1, 9))
def test_an_epoch_has_each_pair_once_for_any_windows_and_ranks(
    size: tuple[int, int, int], epoch: int, world_size: int
) -> None:
    seed, pairs, window_pairs = size
    store = random_store(seed % 1000, pairs)
    with closing(make_plan(store, BATCH_TOKENS, seed, window_pairs=window_pairs)) as plan:
        times = np.zeros(pairs, np.int64)
        for batch in epoch_of(plan, epoch):
            shares = [
                np.concatenate([np.empty(0, np.int64), *share])
                for share in split_batch(store, batch, world_size)
            ]
            assert sorted(np.concatenate(shares)) == sorted(indices(batch))
            assert batch.num_targets == store.tgt.lengths[indices(batch)].sum()
            times[indices(batch)] += 1
        assert (times == 1).all()


@given(
    sizes,
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0, 7.75]), min_size=3, max_size=3),
    st.data(),
)
def test_a_pair_occurs_as_often_as_its_source_weighs(
    size: tuple[int, int, int], weights: list[float], data: st.DataObject
) -> None:
    seed, pairs, window_pairs = size
    first, second = sorted(data.draw(st.integers(1, pairs - 1)) for _ in range(2))
    store = random_store(seed % 1000, pairs, first, second - first, pairs - second)
    with closing(make_plan(store, BATCH_TOKENS, seed, weights, window_pairs=window_pairs)) as plan:
        assume(plan.num_windows > 1)
        epochs = np.zeros((4, pairs), np.int64)
        for epoch in range(4):
            for batch in epoch_of(plan, epoch):
                np.add.at(epochs[epoch], indices(batch), 1)
    for source, weight in zip(np.split(epochs, [first, second], axis=1), weights, strict=True):
        if source.size:
            assert source.min() >= int(weight)
            assert source.max() <= np.ceil(weight)
            total = source.sum(axis=0)  # four epochs: a whole number of times
            assert abs(total - 4 * weight).max() <= 1  # rounding, where a part begins or ends
            assert np.mean(total == 4 * weight) > 0.9 or source.shape[1] < 40


def test_a_source_of_one_token_occurs_in_its_share_of_the_epochs() -> None:
    lengths = np.full(201, 5)
    lengths[0] = 1
    store = store_of_lengths(lengths, lengths)
    store = dataclasses.replace(store, source_sizes=(1, 200))
    windows = Windows(store, 1, [0.5, 1.0], 2)
    starts = [windows.runs(epoch, i).starts for epoch in range(8) for i in range(2)]
    assert sum(int((part == 0).sum()) for part in starts) == 4


@given(sizes, st.data())
def test_random_access_equals_sequential_access(
    size: tuple[int, int, int], data: st.DataObject
) -> None:
    seed, pairs, window_pairs = size
    store = random_store(seed % 1000, pairs)
    with (
        closing(make_plan(store, BATCH_TOKENS, seed, window_pairs=window_pairs)) as plan,
        closing(make_plan(store, BATCH_TOKENS, seed, window_pairs=window_pairs)) as fresh,
    ):
        step = data.draw(st.integers(0, 3 * plan.steps_per_epoch - 1))
        for before in range(step):
            plan[before]
        assert indices(plan[step]).tolist() == indices(fresh[step]).tolist()
        assert indices(plan[0]).tolist() == indices(fresh[0]).tolist()


@pytest.fixture(scope="module")
def store() -> TokenStore:
    return long_store(0, 40_000)


@pytest.fixture(scope="module")
def plan(store: TokenStore) -> Iterator[Plan]:
    with closing(make_plan(store, 2000, 1, window_pairs=4000)) as plan:
        yield plan


def test_windows_are_equal_parts_of_an_epoch(store: TokenStore, plan: Plan) -> None:
    assert plan.num_windows == 10
    tokens = [store.tgt.lengths[pairs].sum() for pairs in windows_of(plan)]
    assert np.ptp(tokens) <= 2 * store.max_length
    first, second = windows_of(plan, 0), windows_of(plan, 1)
    assert all(len(np.intersect1d(a, b)) < 0.2 * len(a) for a in first for b in second)


def test_updates_are_as_full_as_those_of_a_plan_of_the_whole(store: TokenStore, plan: Plan) -> None:
    ours, whole = epoch_of(plan, 0), epoch_of(BatchPlan(store, 2000, 1), 0)
    # Up to one update more in each window, of 54.
    assert len(whole) <= len(ours) <= len(whole) + plan.num_windows
    assert max(batch.num_targets for batch in ours) <= 1.005 * 2000

    def padding(batches: list[GlobalBatch]) -> float:
        chunks = [store.pair_lengths(chunk) for batch in batches for chunk in batch.chunks]
        padded = sum(lengths.shape[1] * lengths.max(axis=1) for lengths in chunks)
        return float(1 - sum(lengths.sum() for lengths in chunks) / padded.sum())

    assert padding(ours) < padding(whole) + 0.01  # of windows of 4,000 pairs


def test_a_window_is_read_in_runs_of_neighbours(plan: Plan) -> None:
    for pairs in windows_of(plan):
        runs = 1 + np.count_nonzero(np.diff(np.sort(pairs)) != 1)
        assert runs <= 4000 / 128 * 5  # blocks of 31 pairs, and two that are cut
        assert np.count_nonzero(np.diff(pairs) == 1) < 100  # but not trained on in that order


def test_a_window_mixes_the_sources(store: TokenStore) -> None:
    parts = (1000, 29_000, 10_000)
    mixed = dataclasses.replace(store, source_sizes=parts)
    weights = [3.0, 1.0, 0.5]
    with closing(make_plan(mixed, 2000, 1, weights, window_pairs=4000)) as plan:
        bounds = np.cumsum([0, *parts])
        tokens = [int(np.diff(mixed.tgt.offsets[[a, b]])[0]) for a, b in pairwise(bounds)]
        for pairs in windows_of(plan):
            source = np.searchsorted(bounds, pairs, side="right") - 1
            found = np.bincount(source, mixed.tgt.lengths[pairs], 3)
            expected = np.array(weights) * tokens / plan.num_windows
            assert abs(found - expected).max() <= 2 * mixed.max_length


def test_updates_of_all_windows_fit_the_buffers() -> None:
    rng = np.random.default_rng(3)
    ratio = np.repeat(rng.lognormal(0, 0.2, 160), 500)  # source languages of different lengths
    tgt = np.clip(rng.lognormal(3, 0.6, 80_000), 2, 100).astype(np.int64)
    src = np.clip(tgt * ratio, 2, 100).astype(np.int64)
    store = store_of_lengths(src, tgt)
    with closing(make_plan(store, 4000, 1, window_pairs=20_000)) as plan:
        assert plan.num_windows == 4
        shape = plan_buffers(store, plan, 4000)
        parts = [len(buffered_batches(store, batch, shape)) for batch in epoch_of(plan, 0)]
    assert np.mean(np.array(parts) > shape.parts) < 0.05  # split over two buffers


def test_plans_are_those_of_earlier_versions() -> None:
    def digest(plan: Plan) -> str:
        checksum = hashlib.sha256()
        with closing(plan):
            for step in range(3 * plan.steps_per_epoch):
                for chunk in plan[step].chunks:
                    checksum.update(chunk.tobytes() + b"|")
                checksum.update(str(plan[step].num_targets).encode())
        return checksum.hexdigest()[:16]

    one = dataclasses.replace(long_store(0, 3000), source_sizes=(2000, 1000))
    plain = make_plan(one, 2000, 7, window_pairs=1501)
    assert isinstance(plain, BatchPlan)
    # Recorded before there were windows.
    assert digest(plain) == "37255ce04d7f7a45"
    weighted = make_plan(one, 2000, 7, [1.25, 0.5], window_pairs=1501)
    assert digest(weighted) == "42344e17dfc60038"
    # Recorded when windows were introduced.
    windows = make_plan(one, 2000, 7, window_pairs=1000)
    assert (windows.num_windows, digest(windows)) == (3, "ebc9d61d01b07f2f")
    weighted = make_plan(one, 2000, 7, [1.25, 0.5], window_pairs=700)
    assert (weighted.num_windows, digest(weighted)) == (4, "fbefb22b7774c7e9")


def test_windows_of_long_sequences_are_not_divided() -> None:
    store = store_of_lengths(np.full(1000, 30), np.full(1000, 30))
    assert make_plan(store, 119, 1, window_pairs=10).num_windows == 1
    with closing(make_plan(store, 120, 1, window_pairs=10)) as plan:
        assert plan.num_windows > 1


def test_the_next_window_is_planned_in_the_background(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, done = [], threading.Event()
    real = WindowedPlan._plan

    def spy(self: WindowedPlan, number: int) -> Any:
        window = real(self, number)
        planned.append((number, threading.current_thread().name))
        if number == 1:
            done.set()
        return window

    monkeypatch.setattr(WindowedPlan, "_plan", spy)
    with closing(make_plan(store, 2000, 1, window_pairs=4000)) as plan:
        plan[0]
        assert done.wait(30)  # although no update of it was asked for
        assert [number for number, _ in planned] == [0, 1]
        assert all(thread.startswith("next-window") for _, thread in planned)


def test_no_thread_runs_until_an_update_is_read(store: TokenStore) -> None:
    """So a plan that nothing is read from, like that of a finished run, needs no closing."""
    before = set(threading.enumerate())
    plan = make_plan(store, 2000, 1, window_pairs=4000)
    assert plan.num_windows > 1
    plan.representative_batches(3)
    assert set(threading.enumerate()) <= before
    with closing(plan):
        plan[0]
        assert set(threading.enumerate()) - before


def test_any_update_needs_only_its_own_window_and_the_next(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []
    real = Windows.runs

    def spy(self: Windows, epoch: int, window: int) -> Any:
        planned.append((epoch, window))
        return real(self, epoch, window)

    monkeypatch.setattr(Windows, "runs", spy)
    with closing(make_plan(store, 2000, 1, window_pairs=4000)) as plan:
        plan[int(9.95 * plan.steps_per_epoch)]
    assert planned[0] == (9, 9)
    assert set(planned) <= {(9, 9), (10, 0)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store on disk of blocks of 64 pairs, of which a window has a few."""
    for module in (blocks, token_store, windowed_plan_module, windows_module):
        monkeypatch.setattr(module, "BLOCK_PAIRS", 64)
    monkeypatch.setattr(windows_module, "_BLOCKS_PER_WINDOW", 1)
    rng = np.random.default_rng(0)

    def part(pairs: int) -> EncodedPairs:
        lengths = [rng.integers(1, 16, pairs).astype(np.int32) for _ in range(2)]
        src, tgt = (
            Side.from_lengths(rng.integers(0, 999, n.sum()).astype(np.uint16), n) for n in lengths
        )
        return EncodedPairs(src, tgt)

    token_store.write(tmp_path, (part(n) for n in (100, 27, 300, 1, 500)), 1000)
    return tmp_path


@pytest.mark.parametrize("file", ["src.tokens", "tgt.tokens", "src.offsets", "tgt.offsets"])
def test_a_damaged_block_is_reported_before_its_window_is_read(folder: Path, file: str) -> None:
    with closing(make_plan(TokenStore.load(folder), BATCH_TOKENS, 1, window_pairs=100)) as plan:
        assert plan.num_windows == 9
        expected = [indices(batch).tolist() for batch in epoch_of(plan, 0)]
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    read, errors = [], []
    with closing(make_plan(TokenStore.load(folder), BATCH_TOKENS, 1, window_pairs=100)) as plan:
        for step in range(plan.steps_per_epoch):
            try:
                read.append(indices(plan[step]).tolist() == expected[step])
            except InputError as error:
                errors.append(str(error))
    assert read
    assert all(read)
    (message,) = set(errors)
    assert "checksum of block 7 does not match" in message
    assert str(folder) in message


def test_a_store_of_an_earlier_version_is_planned_alike(folder: Path) -> None:
    plan = make_plan(TokenStore.load(folder), BATCH_TOKENS, 1, window_pairs=100)
    store = TokenStore.load(folder)
    bare = TokenStore(*(Side(side.tokens, side.offsets) for side in (store.src, store.tgt)))
    other = make_plan(bare, BATCH_TOKENS, 1, window_pairs=100)
    with closing(plan), closing(other):
        for ours, theirs in zip(epoch_of(plan, 1), epoch_of(other, 1), strict=True):
            assert indices(ours).tolist() == indices(theirs).tolist()


def test_the_first_rank_plans_a_window_for_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = []
    real = WindowedPlan._lay_out

    def spy(self: WindowedPlan, number: int, runs: Any) -> Any:
        laid_out.append(number)
        return real(self, number, runs)

    monkeypatch.setattr(WindowedPlan, "_lay_out", spy)

    def open_plan(shared: bool) -> Plan:
        return make_plan(TokenStore.load(folder), BATCH_TOKENS, 1, window_pairs=100, shared=shared)

    content = sorted(folder.iterdir())
    with closing(open_plan(True)) as first, closing(open_plan(True)) as second:
        with closing(open_plan(False)) as alone:
            expected = [indices(batch).tolist() for batch in epoch_of(alone, 0)]
        laid_out.clear()
        for step, pairs in enumerate(expected):
            for plan in (first, second):
                assert indices(plan[step]).tolist() == pairs
        assert sorted(laid_out) == list(range(len(laid_out)))
        assert len(laid_out) in (first.num_windows, first.num_windows + 1)  # the next, perhaps
    assert sorted(folder.iterdir()) == content
