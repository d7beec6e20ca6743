"""The micro-batches that one rank runs in each update, over all epochs."""

import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import count, islice
from threading import Lock
from typing import TypeVar

import numpy as np
import torch

from transformer_mt.batch import IGNORE_INDEX, Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.micro_batches import micro_batches, split_batch
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.batching.sharded_plan import ShardedPlan, epoch_weights
from transformer_mt.data.batching.static_batches import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.batching.subword_regularization import SampledSegmentation, Share
from transformer_mt.data.store.corpus import Corpus
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.store.workers import WorkerKilledError, map_ordered, num_workers
from transformer_mt.data.subwords.tokenizer import PAD
from transformer_mt.distributed.environment import env_local_rank, env_local_size
from transformer_mt.distributed.world import World
from transformer_mt.kernels.hardware import background_thread

T = TypeVar("T")

log = logging.getLogger(__name__)

_MAX_SAMPLING_PROCESSES = 16
"""Maximum number of processes that sample segmentations for one rank, to save memory."""

_NICENESS = 10
"""Niceness of these processes."""

_PREFETCHED_STEPS = 2
"""One step is enough to hide the reading; the second evens out variations."""


class BatchIterator:
    """One rank's micro-batches of every update. Updates are counted from 1, over all epochs.

    With subword regularisation, the plan is that of the stored segmentation: updates have
    ``train.batch_tokens`` target tokens on average.

    The tokens are verified here, on each machine, or shard by shard as they are read. Threads and
    processes start with the first update that is read; ``close`` ends them.

    Args:
        job: The configuration.
        train: Training pairs.
        segmentation: Samples their segmentation, again in each epoch (subword regularisation);
            None: as stored.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        fixed_shape: Whether every batch has the same shape, for a compiled training step.
        world: Ranks that share the updates.

    Raises:
        InputError: The tokens do not match their checksums.

    Attributes:
        buffer_shape: Shape of every batch, with ``fixed_shape``.
    """

    def __init__(
        self,
        job: TrainJob,
        train: Corpus,
        segmentation: SampledSegmentation | None,
        max_tokens: int,
        fixed_shape: bool,
        world: World,
    ):
        self._train, self._max_tokens, self._world = train, max_tokens, world
        weights = epoch_weights(job.data, train.source_sizes.sum(axis=0).tolist())
        if env_local_rank() == 0:
            train.sample.verify()  # on each machine, which may have a cache of its own
        growth = segmentation.growth(train.sample) if segmentation else (1.0, 1.0)
        batch_tokens = max(1, round(job.train.batch_tokens / growth[1]))
        self._plan = ShardedPlan(train, batch_tokens, job.train.seed, weights)
        self._lock = Lock()
        self._sampled: SampledShares | None = None
        if segmentation:
            workers = math.ceil(num_workers(job.data.workers) / env_local_size())
            self._sampled = SampledShares(
                segmentation, self._share, min(workers, _MAX_SAMPLING_PROCESSES)
            )
        self.buffer_shape: BufferShape | None = None
        if fixed_shape:
            store, plan = self._plan.first_shard()
            self.buffer_shape = plan_buffers(store, plan, max_tokens, world.size, growth)

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch, the same for every epoch."""
        return self._plan.steps_per_epoch

    def read(self, step: int) -> tuple[list[Batch], int]:
        """This rank's micro-batches of an update, and its number of target tokens.

        The number is that of the whole update, or, with subword regularisation, of this rank's
        share: ``total_targets`` adds them up.

        Raises:
            InputError: The tokens do not match their checksums.
        """
        if self._sampled:
            store, batch = self._sampled.read(step)
            parts = self._micro_batches(store, batch, 0, 1)
        else:
            store, batch = self.global_batch(step)
            parts = self._micro_batches(store, batch, self._world.rank, self._world.size)
        if self._world.device.type == "cuda":
            parts = [part.pin_memory() for part in parts]
        return parts, batch.num_targets

    def total_targets(self, num_targets: int) -> int:
        """Number of target tokens of an update on all ranks, from the number of ``read``.

        With subword regularisation, a rank samples only its own share, and all ranks must call
        this; otherwise all of them know the number.
        """
        if self._sampled is None or self._world.size == 1:
            return num_targets
        return int(self._world.sum(torch.tensor(num_targets)).item())

    def padding_share(self, steps: Iterable[int]) -> float:
        """Share of padding in this rank's rows of the given updates, as the pairs are stored."""
        rows = tokens = 0
        for step in steps:
            share = self.global_batch(step)
            for batch in self._micro_batches(*share, self._world.rank, self._world.size):
                rows += len(batch.src.tokens) + len(batch.tgt_out)
                tokens += int((batch.src.tokens != PAD).sum())
                tokens += int((batch.tgt_out != IGNORE_INDEX).sum())
        return 1 - tokens / rows if rows else 0.0

    def worst_case(self) -> list[Batch]:
        """Micro-batches that need the most memory, made of the longest pairs."""
        store = self._train.sample
        lengths = np.stack([store.src.lengths, store.tgt.lengths])
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        order = np.lexsort((-shorter, -longer))[: max(1, self._max_tokens // int(longer.max()))]
        num_targets = int(lengths[1, order].sum())
        return micro_batches(store, GlobalBatch((order,), num_targets), self._max_tokens)

    def global_batch(self, step: int) -> tuple[TokenStore, GlobalBatch]:
        """The pairs of an update over all ranks, as they are stored. Thread-safe."""
        with self._lock:
            return self._plan[step - 1]

    def _micro_batches(
        self, store: TokenStore, batch: GlobalBatch, rank: int, world_size: int
    ) -> list[Batch]:
        """One rank's share of a batch."""
        if self.buffer_shape is not None:
            return buffered_batches(store, batch, self.buffer_shape, rank, world_size)
        few_shapes = self._world.device.type == "cpu"
        limit = self._max_tokens
        return micro_batches(store, batch, limit, rank, world_size, few_shapes=few_shapes)

    def _share(self, step: int) -> Share:
        """This rank's share of an update, as it is stored."""
        (store, batch), epoch = self.global_batch(step), (step - 1) // self.steps_per_epoch
        chunks = split_batch(store, batch, self._world.size)[self._world.rank]
        pairs = np.concatenate(chunks or batch.chunks)
        if not chunks:
            return Share.read(store, epoch, pairs[:1], [0])
        return Share.read(store, epoch, pairs, [len(chunk) for chunk in chunks])

    def close(self) -> None:
        """Ends the threads and processes that started with the first update."""
        if self._sampled:
            self._sampled.close()
        self._plan.close()


class SampledShares:
    """One rank's share of every update, sampled ahead by worker processes.

    Args:
        task: Samples the segmentation.
        share: Returns the stored share of an update, by its number.
        processes: Maximum number of worker processes; 0 works in this process.
    """

    def __init__(self, task: SampledSegmentation, share: Callable[[int], Share], processes: int):
        self._task, self._share, self._processes = task, share, processes
        self._next_step = 0
        self._results: Generator[tuple[TokenStore, GlobalBatch], None, None] | None = None

    def read(self, step: int) -> tuple[TokenStore, GlobalBatch]:
        """The share of an update; sampling of the next ones is started."""
        if self._results is None or step != self._next_step:
            self.close()
            shares = map(self._share, count(step))
            self._results = map_ordered(self._task, shares, self._processes, nice=_NICENESS)
        self._next_step = step + 1
        try:
            return next(self._results)
        except WorkerKilledError:  # perhaps by a signal to the whole group, which ends the training
            log.warning("warning: a process that samples segmentations was killed")
            self.close()  # the next update starts new processes
            return self._task(self._share(step))

    def close(self) -> None:
        """Ends the worker processes."""
        if self._results is not None:
            self._results.close()
            self._results = None


def prefetch(read: Callable[[int], T], steps: Iterable[int]) -> Generator[T, None, None]:
    """Yields ``read(step)`` for each step in order, computed by a thread a few steps ahead.

    An exception in ``read`` is raised here when its step is reached. Close the generator to stop
    before the end.
    """
    remaining = iter(steps)
    with background_thread("prefetch") as thread:
        pending = deque(thread.submit(read, step) for step in islice(remaining, _PREFETCHED_STEPS))
        while pending:
            batch = pending.popleft().result()
            pending.extend(thread.submit(read, step) for step in islice(remaining, 1))
            yield batch
