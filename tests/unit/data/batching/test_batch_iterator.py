"""Batches of all epochs, from one token store or from a resampled store for each epoch."""

import dataclasses
import logging
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.stores import store_of_lengths

from transformer_mt.config import (
    CleaningConfig,
    DataConfig,
    SourceConfig,
    TokenizerConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.data.batching import batch_iterator as batch_iterator_module
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.batching.fixed_buffers import buffered_batches, plan_buffers
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.store import epoch_stores as epoch_stores_module
from transformer_mt.data.store import progress as progress_module
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.distributed import World
from transformer_mt.errors import InputError

PAIRS = 150
TOKENS = 200
"""Target tokens of an update."""

STRENGTH = 0.2


def write(path: Path, first: int, count: int) -> SourceConfig:
    """Writes pairs that each begin with a unique number."""
    rng = random.Random(first)
    words = ["Hundehaus", "Scheune", "Füchse", "springt", "schläft", "über"]
    lines = []
    for i in range(first, first + count):
        line = f"{i} " + " ".join(rng.choices(words, k=rng.randint(1, 6)))
        lines.append(f"{line}\t{line.upper()}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return SourceConfig(tsv=str(path))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    folder = tmp_path_factory.mktemp("data")
    sources = [write(folder / "a.tsv", 1000, 100), write(folder / "b.tsv", 1100, PAIRS - 100)]
    data = DataConfig(
        src_lang="en", tgt_lang="de", train=sources, workers=0,
        valid=[write(folder / "v.tsv", 5000, 5)], cleaning=CleaningConfig(max_tokens=100),
    )  # fmt: skip
    return TrainJob(
        run_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        data=data,
        tokenizer=TokenizerConfig(vocab_size=340, sampling=STRENGTH),
        train=TrainConfig(max_tokens_per_device=500),
    )


@pytest.fixture
def prepared(job: TrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Data prepared for a new run, without stores of other tests."""
    monkeypatch.setattr(epoch_stores_module, "BLOCK_PAIRS", 20)
    return prepare(dataclasses.replace(job, run_dir=str(tmp_path / "run")))


def stores_of(prepared: Prepared) -> EpochStores:
    assert prepared.epoch_stores is not None
    return prepared.epoch_stores


def iterator_of(
    prepared: Prepared,
    weights: tuple[float, ...] = (),
    num_steps: int = 10**6,
    *,
    resample: bool = True,
) -> BatchIterator:
    job = TrainJob(
        run_dir="unused",
        data=dataclasses.replace(prepared.config, weights=list(weights)),
        train=TrainConfig(batch_tokens=TOKENS, seed=1),
    )
    stores, world = stores_of(prepared) if resample else None, World(torch.device("cpu"))
    iterator = BatchIterator(job, prepared.train, stores, 500, False, world)
    iterator.num_steps = num_steps
    return iterator


@pytest.fixture
def iterator(prepared: Prepared) -> Iterator[BatchIterator]:
    with closing(iterator_of(prepared)) as iterator:
        yield iterator


def content(store: TokenStore, batch: GlobalBatch) -> list[tuple[list[int], list[int]]]:
    indices = np.concatenate(batch.chunks)
    return [(store.src[i].tolist(), store.tgt[i].tolist()) for i in indices]


def indices(batch: GlobalBatch) -> list[int]:
    return [int(i) for chunk in batch.chunks for i in chunk]


def names(stores: EpochStores) -> set[str]:
    return {p.name for p in stores.folder.iterdir() if p.suffix != ".lock"}


def test_without_subword_regularization_all_epochs_share_one_plan(prepared: Prepared) -> None:
    plan, iterator = BatchPlan(prepared.train, TOKENS, 1), iterator_of(prepared, resample=False)
    assert iterator.steps_per_epoch == plan.steps_per_epoch
    for step in range(3 * plan.steps_per_epoch):
        store, batch = iterator.global_batch(step + 1)
        assert store is prepared.train
        assert batch.num_targets == plan[step].num_targets
        assert len(batch.chunks) == len(plan[step].chunks)
        for ours, theirs in zip(batch.chunks, plan[step].chunks, strict=True):
            assert np.array_equal(ours, theirs)
    iterator.close()
    iterator.remove_stores()


def test_an_epoch_has_each_pair_once_in_as_many_updates(
    iterator: BatchIterator, prepared: Prepared
) -> None:
    tokenizer, per_epoch = Tokenizer(prepared.tokenizer_model), iterator.steps_per_epoch
    texts = [
        tokenizer.decode([side[i].tolist() for i in range(PAIRS)])
        for side in (prepared.train.src, prepared.train.tgt)
    ]
    seen = []
    for epoch in range(4):
        steps = range(epoch * per_epoch + 1, (epoch + 1) * per_epoch + 1)
        batches = [iterator.global_batch(step) for step in steps]
        (store,) = {id(store): store for store, _ in batches}.values()
        assert sorted(i for _, batch in batches for i in indices(batch)) == list(range(PAIRS))
        for side, text in zip((store.src, store.tgt), texts, strict=True):
            assert tokenizer.decode([side[i].tolist() for i in range(PAIRS)]) == text
        targets = [batch.num_targets for _, batch in batches]
        for (_, batch), count in zip(batches, targets, strict=True):
            assert count == store.tgt.lengths[indices(batch)].sum()
        assert max(targets) < 1.2 * TOKENS  # of 20 pairs or so
        assert sum(targets) == len(store.tgt.tokens)
        assert store.location(120) == prepared.train.location(120)
        seen.append(store)
    sampled = [[store.tgt[i].tolist() for i in range(PAIRS)] for store in (prepared.train, *seen)]
    for i, one in enumerate(sampled):
        for other in sampled[:i]:
            assert sum(a != b for a, b in zip(one, other, strict=True)) > PAIRS / 2


def test_a_resumed_run_gets_the_same_batches(
    iterator: BatchIterator, prepared: Prepared, job: TrainJob, tmp_path: Path
) -> None:
    per_epoch = iterator.steps_per_epoch
    wanted = {s: content(*iterator.global_batch(s)) for s in range(1, 4 * per_epoch + 1)}
    # With another run folder, where no store exists yet, and another number of processes.
    data = dataclasses.replace(job.data, workers=2)
    other = prepare(dataclasses.replace(job, run_dir=str(tmp_path / "other"), data=data))
    with closing(iterator_of(other, num_steps=4 * per_epoch)) as again:
        for step in range(3 * per_epoch + 2, 4 * per_epoch + 1):
            assert content(*again.global_batch(step)) == wanted[step]
    assert names(stores_of(other)) == {"epoch-000000", "epoch-000003"}  # no others are built


def test_weights_apply_with_subword_regularization(prepared: Prepared) -> None:
    with closing(iterator_of(prepared, weights=(1.0, 0.5))) as iterator:
        per_epoch = iterator.steps_per_epoch
        for epoch in range(3):
            steps = range(epoch * per_epoch + 1, (epoch + 1) * per_epoch + 1)
            found = [i for step in steps for i in iterator.pair_indices(step)]
            times = np.bincount(found, minlength=PAIRS)
            assert (times[:100] == 1).all()
            assert times[100:].sum() == (PAIRS - 100) / 2
            assert times[100:].max() == 1


def test_the_next_epoch_is_built_in_the_background(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, built, proceed = EpochStores.open, [], threading.Event()

    def slow(self: EpochStores, epoch: int, cancel: threading.Event | None = None) -> TokenStore:
        if epoch:
            assert threading.current_thread() is not threading.main_thread()
            proceed.wait(20)
            built.append(epoch)
        return real(self, epoch, cancel)

    monkeypatch.setattr(EpochStores, "open", slow)
    with closing(iterator_of(prepared)) as iterator:
        for step in range(1, iterator.steps_per_epoch + 1):
            iterator.global_batch(step)
        assert built == []  # no step waited for it
        threading.Timer(0.2, proceed.set).start()
        iterator.global_batch(iterator.steps_per_epoch + 1)  # waits for the store
        assert built[:1] == [1]


def test_no_epoch_is_built_after_the_last(prepared: Prepared) -> None:
    with closing(iterator_of(prepared)) as iterator:
        per_epoch = iterator.steps_per_epoch
    with closing(iterator_of(prepared, num_steps=2 * per_epoch)) as iterator:
        for step in range(1, 2 * per_epoch + 1):
            iterator.global_batch(step)
    assert names(stores_of(prepared)) == {"epoch-000000", "epoch-000001"}


def test_past_epochs_are_removed(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_iterator_module, "_MAX_RANK_LAG", 1)
    stores = stores_of(prepared)
    with closing(iterator_of(prepared)) as iterator:
        for epoch in range(6):
            iterator.global_batch(epoch * iterator.steps_per_epoch + 1)
    found = {int(name.removeprefix("epoch-")[:6]) for name in names(stores)}
    # The first, which determines the number of updates, the current one and the one before;
    # perhaps the next, and until that is built, one more.
    assert {0, 4, 5} <= found <= {0, 3, 4, 5, 6}
    iterator.remove_stores()
    assert not stores.folder.exists()
    assert TokenStore.load(prepared.corpus).tgt.tokens.any()


def test_leftovers_of_a_killed_process_are_not_read(prepared: Prepared) -> None:
    stores = stores_of(prepared)
    wanted = stores.open(1).tgt.tokens.tolist()
    stores.remove_before(2)
    assert names(stores) == {"epoch-000000"}
    for kind in ("unfinished", "removed"):
        half = stores.folder / f"epoch-000001.{kind}"
        half.mkdir()
        (half / "src.tokens").write_bytes(b"half a fi")
    assert stores.open(1).tgt.tokens.tolist() == wanted
    stores.remove_before(2)
    assert names(stores) == {"epoch-000000"}


def test_building_can_be_cancelled(prepared: Prepared) -> None:
    stores, cancel = stores_of(prepared), threading.Event()
    cancel.set()
    with pytest.raises(CancelledError):
        stores.open(1, cancel)
    assert names(stores) == {"epoch-000000"}


def test_only_building_in_the_foreground_reports_progress(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress_module, "_LOG_INTERVAL", 0.0)
    stores = stores_of(prepared)
    with caplog.at_level(logging.INFO, logger="transformer_mt"):
        stores.open(1, threading.Event())
        assert caplog.messages == []
        stores.open(2)
    assert caplog.messages[0] == "sampling the segmentation of epoch 3"
    assert caplog.messages[1].startswith("  sampled: 20 pairs")


def test_an_error_in_the_background_is_raised_at_its_epoch(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with closing(iterator_of(prepared)) as iterator:
        monkeypatch.setattr(epoch_stores_module.token_store, "write", full)
        for step in range(1, iterator.steps_per_epoch + 1):
            iterator.global_batch(step)
        with pytest.raises(InputError, match="No space left"):
            iterator.global_batch(iterator.steps_per_epoch + 1)


def test_sequences_never_exceed_the_longest_of_the_corpus(prepared: Prepared) -> None:
    stores = dataclasses.replace(stores_of(prepared), strength=1.0)
    store = stores.open(0)
    longest = max(prepared.train.src.lengths.max(), prepared.train.tgt.lengths.max())
    assert store.max_length == prepared.train.max_length == longest
    stored = prepared.train.src.lengths
    sampled = store.src.lengths
    assert sampled.max() <= longest
    grown = sampled > stored
    assert grown.any()
    assert not grown.all()
    characters = [
        len(Tokenizer(prepared.tokenizer_model).decode([prepared.train.src[i].tolist()])[0]) + 2
        for i in range(PAIRS)
    ]
    for i in range(PAIRS):  # ü and ä are pieces of the vocabulary
        assert sampled[i] == (characters[i] if characters[i] <= longest else stored[i])


def synthetic(epoch: int, count: int = 60_000) -> TokenStore:
    """Lengths as in WMT's training data, randomly a tenth longer, different in each epoch."""
    rng = np.random.default_rng(0)
    src = np.clip(rng.lognormal(3.1, 0.65, count), 2, 250).astype(np.int64)
    tgt = np.clip(src * rng.lognormal(0.05, 0.2, count), 2, 250).astype(np.int64)
    growth = np.random.default_rng([9, epoch])
    sides = []
    for stored in (src, tgt):
        grown = stored + growth.binomial(stored, 0.1)
        sides.append(np.where(grown > 250, stored, grown))
    return store_of_lengths(*sides, max_length_bound=250)


def test_updates_of_later_epochs_fit_the_buffers_of_the_first() -> None:
    first, tokens = synthetic(0), 8000
    plan = BatchPlan(first, tokens, 1)
    shape = plan_buffers(first, plan, tokens)
    per_epoch = plan.steps_per_epoch
    for epoch in (1, 2):
        store = synthetic(epoch)
        later = BatchPlan(store, tokens, 1, template=plan)
        assert later.steps_per_epoch == per_epoch
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        targets = [later[step].num_targets for step in steps]
        assert max(targets) <= 1.01 * tokens
        # Nearly as full as the batches of the first epoch, except for the last, partial one.
        assert np.mean(sorted(targets)[1:]) > 0.97 * tokens
        parts = [len(buffered_batches(store, later[step], shape)) for step in list(steps)[:100]]
        assert sum(count > shape.parts for count in parts) <= 2  # split over two buffers


@pytest.mark.parametrize(
    ("settings", "times"),
    [({}, (1, 1)), ({"weights": [0.5, 2]}, (0.5, 2)), ({"temperature": 1e9}, (1, 3))],
)
def test_sources_occur_as_often_as_configured(
    settings: dict[str, Any], times: tuple[float, float], tmp_path: Path
) -> None:
    sizes = 300, 100
    rng = np.random.default_rng(0)
    lengths = (rng.integers(2, 10, sum(sizes)) for _ in range(2))
    store = dataclasses.replace(store_of_lengths(*lengths), source_sizes=sizes)
    sources = [SourceConfig(tsv="unused")] * 2
    data = DataConfig(src_lang="en", tgt_lang="de", train=sources, valid=sources, **settings)
    job = TrainJob(run_dir=str(tmp_path), data=data, train=TrainConfig(batch_tokens=50))
    batches = BatchIterator(job, store, None, 50, False, World(torch.device("cpu")))
    steps = range(1, batches.steps_per_epoch + 1)
    seen = Counter(pair for step in steps for pair in batches.pair_indices(step))
    first = sum(count for pair, count in seen.items() if pair < sizes[0])
    # Fractional weights are rounded to whole pairs: one more or less.
    assert first == pytest.approx(times[0] * sizes[0], abs=1)
    assert seen.total() - first == pytest.approx(times[1] * sizes[1], abs=1)
