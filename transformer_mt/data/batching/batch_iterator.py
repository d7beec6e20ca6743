"""The micro-batches that one rank runs in each update, over all epochs."""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import TypeVar

import numpy as np

from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.micro_batches import collate, micro_batches
from transformer_mt.data.batching.plan import BatchPlan, epoch_weights
from transformer_mt.data.batching.sharded_plan import ShardedPlan
from transformer_mt.data.batching.static_batches import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.store.token_store import Corpus
from transformer_mt.distributed.world import World
from transformer_mt.kernels.hardware import background_thread

T = TypeVar("T")

_PREFETCHED_STEPS = 2
"""One step is enough to hide the reading; the second evens out variations."""


class BatchIterator:
    """One rank's micro-batches of every update. Updates are counted from 1, over all epochs.

    The tokens are verified here, on each machine, or shard by shard as they are read.

    Args:
        job: The configuration.
        train: Training pairs.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        fixed_shape: Whether every batch has the same shape, for a compiled training step.
        world: Ranks that share the updates.

    Raises:
        InputError: The tokens do not match their checksums.

    Attributes:
        plan: The pairs of each update over all ranks; updates are counted from 0.
        buffer_shape: Shape of every batch, with ``fixed_shape``.
    """

    def __init__(
        self, job: TrainJob, train: Corpus, max_tokens: int, fixed_shape: bool, world: World
    ):
        self._train, self._max_tokens, self._world = train, max_tokens, world
        sizes, tokens = train.source_sizes.sum(axis=0), train.source_tokens.sum(axis=0)
        weights = epoch_weights(job.data, sizes, tokens)
        if world.local_rank == 0:
            train.sample.verify()  # on each machine, which may have a cache of its own
        self.plan: BatchPlan | ShardedPlan
        if len(train.source_sizes) == 1:
            self.plan = BatchPlan(train.sample, job.train.batch_tokens, job.train.seed, weights)
        else:
            self.plan = ShardedPlan(train, job.train.batch_tokens, job.train.seed, weights)
        self.buffer_shape: BufferShape | None = None
        if fixed_shape:
            longest = job.data.cleaning.max_tokens
            self.buffer_shape = plan_buffers(self.plan, longest, max_tokens, world.size)

    def read(self, steps: Iterable[int]) -> Generator[tuple[list[Batch], int], None, None]:
        """This rank's micro-batches of each update, and its target tokens on all ranks.

        Raises:
            InputError: The tokens do not match their checksums.
        """
        rank, world_size = self._world.rank, self._world.size
        for step in steps:
            batch = self.plan[step - 1]
            if self.buffer_shape is not None:
                parts = buffered_batches(batch, self.buffer_shape, rank, world_size)
            else:
                parts = micro_batches(batch, self._max_tokens, rank, world_size)
            if self._world.device.type == "cuda":
                parts = [part.pin_memory() for part in parts]
            yield parts, batch.num_targets

    def worst_case(self) -> Batch:
        """The micro-batch that needs the most memory, made of the longest pairs."""
        store = self._train.sample
        lengths = np.stack([store.src.lengths, store.tgt.lengths])
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        order = np.lexsort((-shorter, -longer))[: max(1, self._max_tokens // int(longer.max()))]
        return collate(store, order)


def prefetch(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields the items, computed by a thread a few ahead; close the generator to stop early.

    An exception is raised here when its item is reached.
    """
    with closing(items), background_thread("prefetch") as thread:
        pending = deque(thread.submit(next, items, None) for _ in range(_PREFETCHED_STEPS))
        while (item := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, items, None))
            yield item
