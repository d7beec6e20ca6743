"""The micro-batches that one rank runs in each update, over all epochs."""

import math
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from threading import Event, Lock

import numpy as np

from transformer_mt.batch import IGNORE_INDEX, Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.fixed_buffers import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.mixing import epoch_weights
from transformer_mt.data.batching.plan import GlobalBatch, Plan
from transformer_mt.data.batching.windowed_plan import make_plan
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import PAD
from transformer_mt.distributed import World
from transformer_mt.runtime import background_thread

_MAX_RANK_LAG = 100
"""Generous bound on the number of updates by which one rank's reading may be ahead of another's."""

_PROBED_PAIRS = 2**21
"""Pairs among which the longest are found to probe the memory."""

StoreAndPlan = tuple[TokenStore, Plan]


class BatchIterator:
    """One rank's micro-batches of every update. Updates are counted from 1, over all epochs.

    With subword regularisation, every epoch has a token store and a plan of its own. A thread
    builds those of the next epoch in worker processes during training. Every epoch has as many
    updates as the first, with similar numbers of tokens.

    Args:
        job: The configuration.
        train: Training pairs.
        epoch_stores: Their stores with a new segmentation each epoch (subword regularisation);
            without, all epochs read ``train``.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        fixed_shape: Whether every batch has the same shape, for a compiled training step.
        world: Ranks that share the updates.

    Attributes:
        num_steps: Number of updates of the run, once known: later epochs are not built.
        buffer_shape: Shape of every batch, with ``fixed_shape``.
    """

    def __init__(
        self,
        job: TrainJob,
        train: TokenStore,
        epoch_stores: EpochStores | None,
        max_tokens: int,
        fixed_shape: bool,
        world: World,
    ):
        self.num_steps: float = math.inf
        self._train, self._max_tokens, self._world = train, max_tokens, world
        self._make_plan = partial(
            make_plan,
            batch_tokens=job.train.batch_tokens,
            seed=job.train.seed,
            weights=epoch_weights(job.data, train.source_sizes),
            window_pairs=job.data.window_pairs,
            shared=world.size > 1,
        )
        self._stores = epoch_stores
        store = epoch_stores.open(0) if epoch_stores else train
        # Kept, because the first plan determines the number of updates of every epoch.
        self._first: StoreAndPlan = store, self._make_plan(store)
        self._epoch, self._current = -1, self._first
        self._next: tuple[int, Future[StoreAndPlan]] | None = None
        self._thread = background_thread("next-epoch")
        self._cancel, self._lock = Event(), Lock()
        self.buffer_shape: BufferShape | None = None
        if fixed_shape:
            self.buffer_shape = plan_buffers(*self._first, max_tokens, world.size)

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch, the same for every epoch."""
        return self._first[1].steps_per_epoch

    @property
    def num_windows(self) -> int:
        """Number of parts of an epoch that are planned, read and verified one after another."""
        return self._first[1].num_windows

    def read(self, step: int) -> tuple[list[Batch], int]:
        """This rank's micro-batches, and the number of target tokens of the update on all ranks.

        Raises:
            InputError: The token store of the epoch cannot be built.
        """
        (store, batch), world = self.global_batch(step), self._world
        if self.buffer_shape is None:
            parts = micro_batches(
                store,
                batch,
                self._max_tokens,
                world.rank,
                world.size,
                few_shapes=world.device.type == "cpu",
            )
        else:
            parts = buffered_batches(store, batch, self.buffer_shape, world.rank, world.size)
        if world.device.type == "cuda":
            parts = [part.pin_memory() for part in parts]
        return parts, batch.num_targets

    def padding_share(self, steps: Iterable[int]) -> float:
        """Share of padding in the rows of this rank's micro-batches of the given updates."""
        rows = tokens = 0
        for batch in (batch for step in steps for batch in self.read(step)[0]):
            rows += len(batch.src.tokens) + len(batch.tgt_out)
            tokens += int((batch.src.tokens != PAD).sum() + (batch.tgt_out != IGNORE_INDEX).sum())
        return 1 - tokens / rows if rows else 0.0

    def worst_case(self) -> list[Batch]:
        """Micro-batches that need the most memory, made of the longest pairs."""
        pairs = self._train.sample(_PROBED_PAIRS)
        lengths = self._train.pair_lengths(pairs)
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        order = np.lexsort((-shorter, -longer))[: max(1, self._max_tokens // int(longer.max()))]
        num_targets = int(lengths[1, order].sum())
        return micro_batches(
            self._train, GlobalBatch((pairs[order],), num_targets), self._max_tokens
        )

    def pair_indices(self, step: int) -> list[int]:
        """Indices in the store of all pairs of an update, over all ranks."""
        _, batch = self.global_batch(step)
        return [int(pair) for chunk in batch.chunks for pair in chunk]

    def global_batch(self, step: int) -> tuple[TokenStore, GlobalBatch]:
        """The pairs of an update over all ranks, and the store to read them from.

        Waits until the store of the epoch is built. Thread-safe.
        """
        index = step - 1
        with self._lock:
            if self._stores and index // self.steps_per_epoch != self._epoch:
                self._start_epoch(self._stores, index)
            store, plan = self._current
            return store, plan[index]

    def close(self) -> None:
        """Cancels the building of the next epoch's store; call it after an error, too."""
        self._cancel.set()
        self._thread.shutdown(cancel_futures=True)
        for _, plan in (self._first, self._current):
            plan.close()

    def remove_stores(self) -> None:
        """Removes the stores of all epochs, at the end of the run."""
        if self._stores:
            self._stores.remove()

    def _start_epoch(self, stores: EpochStores, index: int) -> None:
        epoch = index // self.steps_per_epoch
        if epoch == 0:
            self._current = self._first
        elif self._next and self._next[0] == epoch:
            self._current = self._next[1].result()
        else:  # a resumed run
            self._current = self._plan_epoch(epoch, stores.open(epoch))
        self._epoch = epoch
        if (epoch + 1) * self.steps_per_epoch < self.num_steps:
            oldest = (index - _MAX_RANK_LAG) // self.steps_per_epoch
            self._next = epoch + 1, self._thread.submit(self._build, stores, epoch + 1, oldest)

    def _build(self, stores: EpochStores, epoch: int, oldest: int) -> StoreAndPlan:
        stores.remove_before(oldest)
        return self._plan_epoch(epoch, stores.open(epoch, self._cancel))

    def _plan_epoch(self, epoch: int, store: TokenStore) -> StoreAndPlan:
        plan = self._make_plan(store, template=self._first[1])
        plan[epoch * self.steps_per_epoch]  # plans the epoch now, which takes a while
        return store, plan
