"""Batches of all epochs: the parts of each update of the plan, verified tokens, and prefetching."""

from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from support.polling import wait_until
from support.stores import flip_bit, numbered_corpus, realistic_lengths

from transformer_mt.config import DataConfig, SourceConfig, TrainConfig, TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator, prefetch
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import BatchPlan
from transformer_mt.data.store.token_store import Corpus
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Pairs of two sources."""
    return numbered_corpus(tmp_path, realistic_lengths(1, 150, 20), 1, 100, 50)


def iterator_of(corpus: Corpus, weights: list[float], *world: int) -> BatchIterator:
    sources = [SourceConfig(sample="train")] * 2
    data = DataConfig(src_lang="en", tgt_lang="de", train=sources, weights=weights)
    job = TrainJob(data=data, train=TrainConfig(batch_tokens=200, seed=1))
    return BatchIterator(job, corpus, 90, False, World(torch.device("cpu"), *world))


@pytest.mark.parametrize("weights", [[], [1.0, 3.0]])
def test_updates_are_those_of_the_plan(corpus: Corpus, weights: list[float]) -> None:
    plan, iterator = BatchPlan(corpus.sample, 200, 1, weights), iterator_of(corpus, weights)
    steps = range(1, 3 * plan.steps_per_epoch + 1)
    for step, (parts, num_targets) in zip(steps, iterator.read(steps), strict=True):
        assert num_targets == plan[step - 1].num_targets
        expected = micro_batches(plan[step - 1], 90)
        for part, other in zip(parts, expected, strict=True):
            assert torch.equal(part.src.tokens, other.src.tokens)
            assert torch.equal(part.tgt_out, other.tgt_out)


@pytest.mark.parametrize("local_rank", [0, 1])
def test_the_first_rank_of_each_machine_verifies_the_tokens(
    corpus: Corpus, local_rank: int
) -> None:
    """Its cache may be its own: of the second machine, rank 2 or 3 of 4."""
    (shard,) = corpus.shards
    flip_bit(shard / "src.tokens")
    expected = pytest.raises(InputError, match="is damaged") if local_rank == 0 else nullcontext()
    with expected:
        iterator_of(Corpus.load(shard.parent), [], 2 + local_rank, 4, local_rank)


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
