"""The micro-batches that one rank runs in each update, over all epochs."""

import math
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import TypeVar

import numpy as np
import torch

from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.micro_batches import micro_batches, split_batch
from transformer_mt.data.batching.pair_sampling import PairSampler, Share
from transformer_mt.data.batching.plan import BatchPlan, epoch_weights, global_batch
from transformer_mt.data.batching.sharded_plan import ShardedPlan
from transformer_mt.data.batching.static_batches import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.store.token_store import Corpus
from transformer_mt.data.store.workers import map_ordered
from transformer_mt.distributed.world import World
from transformer_mt.kernels.hardware import available_cores, background_thread

T = TypeVar("T")

_MAX_SAMPLING_PROCESSES = 16
"""Maximum number of processes that sample pairs for one rank, to save memory."""

_PREFETCHED_STEPS = 2
"""One step is enough to hide the reading; the second evens out variations."""


class BatchIterator:
    """One rank's micro-batches of every update. Updates are counted from 1, over all epochs.

    If pairs are sampled, the plan is that of the stored ones: updates have ``train.batch_tokens``
    target tokens on average.

    The tokens are verified here, on each machine, or shard by shard as they are read.

    Args:
        job: The configuration.
        train: Training pairs.
        sampler: Samples the pairs again in each epoch (augmentation, subword regularisation);
            None: as stored.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        fixed_shape: Whether every batch has the same shape, for a compiled training step.
        world: Ranks that share the updates.

    Raises:
        InputError: The tokens do not match their checksums.

    Attributes:
        plan: The pairs of each update over all ranks, as they are stored; counted from 0.
        steps_per_epoch: Number of updates in an epoch, the same for every epoch.
        buffer_shape: Shape of every batch, with ``fixed_shape``.
    """

    def __init__(
        self,
        job: TrainJob,
        train: Corpus,
        sampler: PairSampler | None,
        max_tokens: int,
        fixed_shape: bool,
        world: World,
    ):
        self._train, self._sampler, self._workers = train, sampler, job.data.workers
        self._max_tokens, self._world = max_tokens, world
        weights = epoch_weights(job.data, train.source_sizes.sum(axis=0).tolist())
        if world.local_rank == 0:
            train.sample.verify()  # on each machine, which may have a cache of its own
        growth, batch_tokens = None, job.train.batch_tokens
        if sampler:
            growth = sampler.growth(train.sample)
            batch_tokens = max(1, round(batch_tokens / growth.means[1]))
        self.plan: BatchPlan | ShardedPlan
        if len(train.source_sizes) == 1:
            self.plan = BatchPlan(train.sample, batch_tokens, job.train.seed, weights)
        else:
            self.plan = ShardedPlan(train, batch_tokens, job.train.seed, weights)
        self.steps_per_epoch = self.plan.steps_per_epoch
        self.buffer_shape: BufferShape | None = None
        if fixed_shape:
            shard = self.plan if isinstance(self.plan, BatchPlan) else self.plan.first_shard()
            self.buffer_shape = plan_buffers(shard, max_tokens, world.size, growth)

    def read(self, steps: Iterable[int]) -> Generator[tuple[list[Batch], int], None, None]:
        """This rank's micro-batches of each update, and its number of target tokens.

        The number is that of the whole update, or, if pairs are sampled, of this rank's share:
        ``total_targets`` adds them up. Processes that sample run until the generator is closed.

        Raises:
            InputError: The tokens do not match their checksums; or a sampling process was killed.
        """
        batches = (self.plan[step - 1] for step in steps)
        rank, world_size, device = self._world.rank, self._world.size, self._world.device.type
        if self._sampler:
            workers = max(1, available_cores() // self._world.local_size)
            if self._workers is not None:  # of all ranks on this machine
                workers = math.ceil(self._workers / self._world.local_size)
            stored = map(self._share, steps)
            batches = map_ordered(self._sampler, stored, min(workers, _MAX_SAMPLING_PROCESSES))
            rank, world_size = 0, 1
        with closing(batches):
            for batch in batches:
                if self.buffer_shape is not None:
                    parts = buffered_batches(batch, self.buffer_shape, rank, world_size)
                else:
                    pad_to_grid = device == "cpu"
                    parts = micro_batches(
                        batch, self._max_tokens, rank, world_size, pad_to_grid=pad_to_grid
                    )
                if device == "cuda":
                    parts = [part.pin_memory() for part in parts]
                yield parts, batch.num_targets

    def total_targets(self, num_targets: int) -> int:
        """Number of target tokens of an update on all ranks, from the number of ``read``.

        If pairs are sampled, a rank samples only its own share, and all ranks must call this;
        otherwise all of them know the number.
        """
        if self._sampler is None or self._world.size == 1:
            return num_targets
        return int(self._world.sum(torch.tensor(num_targets)).item())

    def worst_case(self) -> list[Batch]:
        """Micro-batches that need the most memory, made of the longest pairs."""
        store = self._train.sample
        lengths = np.stack([store.src.lengths, store.tgt.lengths])
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        order = np.lexsort((-shorter, -longer))[: max(1, self._max_tokens // int(longer.max()))]
        return micro_batches(global_batch(store, [order]), self._max_tokens)

    def _share(self, step: int) -> Share:
        """This rank's share of an update, as it is stored."""
        batch = self.plan[step - 1]
        parts = split_batch(batch, self._world.size)[self._world.rank]
        places = np.concatenate(parts) if parts else np.zeros(1, np.int64)
        sizes = list(map(len, parts)) or [0]
        pairs = np.concatenate(batch.chunks)[places]
        return Share(step, places, sizes, batch.store.select(pairs))


def prefetch(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields the items, computed by a thread a few ahead; close the generator to stop early.

    An exception is raised here when its item is reached.
    """
    with closing(items), background_thread("prefetch") as thread:
        pending = deque(thread.submit(next, items, None) for _ in range(_PREFETCHED_STEPS))
        while (item := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, items, None))
            yield item
