"""Batches of all epochs: the pairs of each update, on any number of ranks, and prefetching."""

import dataclasses
import random
import shutil
from collections import Counter
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.data_jobs import prepare_job, write_pairs
from support.polling import wait_until
from support.stores import flip_bit
from support.tokenizers import WORDS

from transformer_mt.batch import IGNORE_INDEX, Batch
from transformer_mt.config import SourceConfig, TrainConfig, TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator, prefetch
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.prepare import Prepared, prepare
from transformer_mt.data.subwords.tokenizer import EOS, PAD
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
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    folder = tmp_path_factory.mktemp("data")
    sources = [write(folder / "a.tsv", 1000, 100), write(folder / "b.tsv", 1100, PAIRS - 100)]
    return prepare_job(folder, sources, 340, valid=[write(folder / "v.tsv", 5000, 5)])


@pytest.fixture(scope="module")
def prepared(job: TrainJob) -> Prepared:
    return prepare(job)


def iterator_of(
    prepared: Prepared, rank: int = 0, size: int = 1, local_rank: int = 0, **changes: Any
) -> BatchIterator:
    data = dataclasses.replace(prepared.config, **changes)
    job = TrainJob(run_dir="unused", data=data, train=TrainConfig(batch_tokens=TOKENS, seed=1))
    return BatchIterator(
        job, prepared.train, 500, False, World(torch.device("cpu"), rank, size, local_rank)
    )


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


def stored(prepared: Prepared, indices: list[int]) -> Counter[Sequences]:
    store = prepared.train.sample
    sides = store.src, store.tgt
    return Counter(tuple(tuple(side[i].tolist()) for side in sides) for i in indices)


@pytest.mark.parametrize("weights", [[], [1.0, 3.0]])
def test_updates_have_the_pairs_of_the_plan(prepared: Prepared, weights: list[float]) -> None:
    plan = BatchPlan(prepared.train.sample, TOKENS, 1, weights)
    iterator = iterator_of(prepared, weights=weights)
    assert iterator.steps_per_epoch == plan.steps_per_epoch
    steps = range(1, 3 * plan.steps_per_epoch + 1)
    for step, (batches, num_targets) in zip(steps, iterator.read(steps), strict=True):
        pairs = np.concatenate(plan[step - 1].chunks).tolist()
        found = content(batches)
        assert found == stored(prepared, pairs)
        assert num_targets == sum(len(tgt) for _, tgt in found.elements())


@pytest.mark.parametrize("local_rank", [0, 1])
def test_the_first_rank_of_each_machine_verifies_the_tokens(
    prepared: Prepared, tmp_path: Path, local_rank: int
) -> None:
    """Its cache may be its own: of the second machine, rank 2 or 3 of 4."""
    shutil.copytree(prepared.corpus, tmp_path / "corpus")
    (tokens,) = (tmp_path / "corpus").glob("*/src.tokens")
    flip_bit(tokens)
    copy = dataclasses.replace(prepared, corpus=tmp_path / "corpus")
    expected = pytest.raises(InputError, match="is damaged") if local_rank == 0 else nullcontext()
    with expected:
        iterator_of(copy, rank=2 + local_rank, size=4, local_rank=local_rank)


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
