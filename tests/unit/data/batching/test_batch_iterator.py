"""Batches of all epochs, of pairs as they are stored or sampled again in each epoch."""

import dataclasses
import multiprocessing
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Generator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data_jobs import changed, prepare_job, write_pairs
from support.polling import wait_until
from support.stores import flip_bit
from support.tokenizers import WORDS

from transformer_mt.batch import IGNORE_INDEX, Batch
from transformer_mt.config import SourceConfig, TrainConfig, TrainJob
from transformer_mt.contrib.robustness.noise import NoiseMix
from transformer_mt.data.batching.batch_iterator import BatchIterator, prefetch
from transformer_mt.data.batching.pair_sampling import PairSampler, Share
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.subwords.tokenizer import EOS, PAD, Tokenizer
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError

PAIRS = 150
TOKENS = 200
"""Target tokens of an update."""


def write(path: Path, first: int, count: int) -> SourceConfig:
    """Writes pairs that each begin with a unique number."""
    rng = random.Random(first)
    numbers = map(str, range(first, first + count))
    lines = [" ".join([i, *rng.choices(WORDS, k=rng.randint(1, 6))]) for i in numbers]
    return write_pairs(path, [(line, line.upper()) for line in lines])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("data")
    sources = [write(folder / "a.tsv", 1000, 100), write(folder / "b.tsv", 1100, PAIRS - 100)]
    valid = [write(folder / "v.tsv", 5000, 5)]
    job = prepare_job(folder, sources, 340, valid=valid)
    return prepare(changed(job, "tokenizer", sampling=0.2))


def sampler_of(prepared: Prepared) -> PairSampler:
    assert prepared.sampler is not None
    return prepared.sampler


@pytest.fixture(scope="module")
def sampled(prepared: Prepared) -> Prepared:
    """The data with noise and another segmentation in each epoch."""
    noise = NoiseMix({"upper_case": 0.2, "typing_errors": 0.3, "extra_blanks": 0.2})
    sampler = dataclasses.replace(sampler_of(prepared), noise=noise)
    return dataclasses.replace(prepared, sampler=sampler)


def iterator_of(
    prepared: Prepared,
    workers: int = 0,
    rank: int = 0,
    size: int = 1,
    local_rank: int = 0,
    **changes: Any,
) -> BatchIterator:
    data = dataclasses.replace(prepared.config, workers=workers, **changes)
    job = TrainJob(run_dir="unused", data=data, train=TrainConfig(batch_tokens=TOKENS, seed=1))
    world = World(torch.device("cpu"), rank, size, local_rank)
    return BatchIterator(job, prepared.train, prepared.sampler, 500, False, world)


def pair_indices(iterator: BatchIterator, step: int) -> list[int]:
    """Indices of all pairs of an update, over all ranks."""
    return [int(pair) for chunk in iterator.plan[step - 1].chunks for pair in chunk]


def read(iterator: BatchIterator, step: int) -> tuple[list[Batch], int]:
    ((batches, num_targets),) = iterator.read([step])
    return batches, num_targets


Sequences = tuple[tuple[int, ...], ...]


def content(batches: list[Batch]) -> Counter[Sequences]:
    """The pairs that are trained on, as source and target sequences."""
    pairs = Counter[Sequences]()
    for batch in batches:
        if (batch.tgt_out != IGNORE_INDEX).any():
            src, tgt = batch.src.tokens.numpy(), batch.tgt_out.numpy()
            pairs.update(
                zip(sequences(src[src != PAD]), sequences(tgt[tgt != IGNORE_INDEX]), strict=True)
            )
    return pairs


def sequences(tokens: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    ends = np.flatnonzero(tokens == EOS) + 1
    return [tuple(part.tolist()) for part in np.split(tokens, ends)[:-1]]


def texts(prepared: Prepared, pairs: Counter[Sequences]) -> Counter[tuple[str, ...]]:
    decode = Tokenizer(prepared.tokenizer_model).decode
    return Counter(tuple(decode([list(side) for side in pair])) for pair in pairs.elements())


def stored(prepared: Prepared, indices: list[int]) -> Counter[Sequences]:
    store = prepared.train.sample
    sides = store.src, store.tgt
    return Counter(tuple(tuple(side[i].tolist()) for side in sides) for i in indices)


@pytest.mark.parametrize("weights", [[], [1.0, 3.0]])
def test_without_subword_regularization_the_pairs_are_as_stored(
    prepared: Prepared, weights: list[float]
) -> None:
    plan = BatchPlan(prepared.train.sample, TOKENS, 1, weights)
    iterator = iterator_of(dataclasses.replace(prepared, sampler=None), weights=weights)
    assert iterator.steps_per_epoch == plan.steps_per_epoch
    steps = range(1, 3 * plan.steps_per_epoch + 1)
    for step, (batches, num_targets) in zip(steps, iterator.read(steps), strict=True):
        assert iterator.total_targets(num_targets) == plan[step - 1].num_targets
        pairs = np.concatenate(plan[step - 1].chunks).tolist()
        assert pair_indices(iterator, step) == pairs
        assert content(batches) == stored(prepared, pairs)


def test_an_epoch_has_each_pair_once_in_a_segmentation_of_its_own(prepared: Prepared) -> None:
    iterator = iterator_of(prepared)
    per_epoch, seen = iterator.steps_per_epoch, [stored(prepared, list(range(PAIRS)))]
    for epoch in range(3):
        pairs, targets = Counter[Sequences](), []
        for step in range(epoch * per_epoch + 1, (epoch + 1) * per_epoch + 1):
            batches, num_targets = read(iterator, step)
            found = content(batches)
            assert texts(prepared, found) == texts(
                prepared, stored(prepared, pair_indices(iterator, step))
            )
            assert num_targets == sum(len(tgt) for _, tgt in found.elements())
            pairs += found
            targets.append(num_targets)
        assert texts(prepared, pairs) == texts(prepared, seen[0])
        assert max(targets) < 1.3 * TOKENS  # of 20 pairs or so
        assert 0.7 * TOKENS < np.mean(sorted(targets)[1:]) < 1.05 * TOKENS  # but the last
        for other in seen:
            assert (pairs & other).total() < PAIRS / 2
        seen.append(pairs)


@settings(max_examples=8, deadline=None)
@given(step=st.integers(1, 40), size=st.integers(2, 30))
def test_an_update_is_the_same_for_any_number_of_ranks(
    sampled: Prepared, step: int, size: int
) -> None:
    batches, num_targets = read(iterator_of(sampled), step)
    # More ranks than an update has pairs, too.
    parts = [read(iterator_of(sampled, rank=rank, size=size), step) for rank in range(size)]
    assert sum((content(part) for part, _ in parts), Counter()) == content(batches)
    assert sum(number for _, number in parts) == num_targets


def test_processes_sample_ahead_what_a_resumed_run_gets_whatever_signals_come(
    sampled: Prepared,
) -> None:
    """A signal to all processes of a run must leave it time to save a checkpoint.

    Nothing is left on the disk.
    """
    before = sorted(sampled.corpus.parent.rglob("*"))
    whole, ahead = iterator_of(sampled), iterator_of(sampled, workers=2)
    steps = range(2 * whole.steps_per_epoch - 2, 2 * whole.steps_per_epoch + 13)
    signals = {steps[3]: signal.SIGTERM, steps[5]: signal.SIGUSR1, steps[7]: signal.SIGHUP}
    with closing(ahead.read(steps)) as updates:
        for step, (batches, _) in zip(steps, updates, strict=True):
            if step in signals:
                for process in multiprocessing.active_children():
                    os.kill(process.pid, signals[step])
            for ours, expected in zip(batches, read(whole, step)[0], strict=True):
                assert ours.src.tokens.equal(expected.src.tokens)
                assert ours.tgt_out.equal(expected.tgt_out)
    assert not multiprocessing.active_children()
    assert sorted(sampled.corpus.parent.rglob("*")) == before


@pytest.mark.parametrize("local_rank", [0, 1])
def test_the_first_rank_of_each_machine_verifies_the_tokens(
    prepared: Prepared, tmp_path: Path, local_rank: int
) -> None:
    """Its cache may be its own: of the second machine, rank 2 or 3 of 4."""
    shutil.copytree(prepared.corpus, tmp_path / "corpus")
    (tokens,) = (tmp_path / "corpus").glob("*/src.tokens")
    flip_bit(tokens)
    copy = dataclasses.replace(prepared, corpus=tmp_path / "corpus", sampler=None)
    expected = pytest.raises(InputError, match="is damaged") if local_rank == 0 else nullcontext()
    with expected:
        iterator_of(copy, rank=2 + local_rank, size=4, local_rank=local_rank)


def test_copies_of_a_pair_in_an_epoch_are_sampled_apart(sampled: Prepared) -> None:
    """A source of weight 3 is not the same sentences three times."""
    iterator = iterator_of(sampled, weights=[1.0, 3.0])
    by_number: dict[str, list[Sequences]] = {}
    tokenizer = Tokenizer(sampled.tokenizer_model)
    for step in range(1, iterator.steps_per_epoch + 1):
        for pair in content(read(iterator, step)[0]).elements():
            number = tokenizer.decode([list(pair[1])])[0].split()[0]
            by_number.setdefault(number, []).append(pair)
    copies = [pairs for pairs in by_number.values() if len(pairs) > 1]
    assert list(map(len, copies)) == [3] * (PAIRS - 100)
    assert np.mean([len(set(pairs)) for pairs in copies]) > 2


def test_sequences_never_exceed_the_longest_of_the_corpus(prepared: Prepared) -> None:
    store, tokenizer = prepared.train.sample, Tokenizer(prepared.tokenizer_model)
    task = dataclasses.replace(sampler_of(prepared), strength=1.0)
    sampled = task(Share(0, np.arange(PAIRS), [PAIRS], store)).store
    longest = max(store.src.lengths.max(), store.tgt.lengths.max())
    assert sampled.max_length == store.max_length == longest
    assert {True, False} == set(sampled.src.lengths > store.src.lengths)
    for i in range(PAIRS):  # ü and ä are pieces of the vocabulary
        characters = len(tokenizer.decode([store.src[i].tolist()])[0]) + 2
        wanted = characters if characters <= longest else len(store.src[i])
        assert len(sampled.src[i]) == wanted


def test_two_steps_are_prefetched_in_order_and_an_error_comes_at_its_step() -> None:
    started: list[int] = []

    def read() -> Generator[int, None, None]:
        for step in range(4):
            started.append(step)
            yield step
        raise ValueError("step 4")

    steps = prefetch(read())
    assert next(steps) == 0
    wait_until(lambda: len(started) == 3)  # the next two are read while this one is processed
    steps.close()
    assert started == [0, 1, 2]
    steps = prefetch(read())
    assert [next(steps) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="step 4"):
        next(steps)
    assert list(prefetch(step for step in range(0))) == []
