"""Global batches over all epochs, with subword regularisation from a new token store each epoch."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock

from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore

_MAX_RANK_LAG = 100
"""Generous bound on the number of updates by which one rank's reading may be ahead of another's."""

StoreAndPlan = tuple[TokenStore, BatchPlan]


class EpochPlans:
    """The token store and the plan of global batches of each epoch.

    With subword regularisation, every epoch has a token store of its own. A thread builds the next
    one in worker processes during training. Every epoch has as many updates as the first, with
    similar numbers of tokens.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source occurs in an epoch.
        epoch_stores: The store of each epoch; without, all epochs read ``store``.

    Attributes:
        first: Store and plan of the first epoch.
        num_steps: Number of updates of the run, once known: later epochs are not built.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        epoch_stores: EpochStores | None = None,
    ):
        self.num_steps: float = math.inf
        self._make_plan = partial(BatchPlan, batch_tokens=batch_tokens, seed=seed, weights=weights)
        self._stores = epoch_stores
        if epoch_stores:  # the first store is kept: it determines the number of updates
            store = epoch_stores.open(0)
        self.first: StoreAndPlan = store, self._make_plan(store)
        self._epoch, self._current = -1, self.first
        self._next: tuple[int, Future[StoreAndPlan]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-epoch")
        self._cancel, self._lock = Event(), Lock()

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch, the same for every epoch."""
        return self.first[1].steps_per_epoch

    def global_batch(self, step: int) -> tuple[TokenStore, GlobalBatch]:
        """The global batch of an update, counted from 0 over all epochs, and the store to read.

        Waits until the store of its epoch is built. Thread-safe.

        Raises:
            InputError: The store cannot be built.
        """
        with self._lock:
            if self._stores and step // self.steps_per_epoch != self._epoch:
                self._start_epoch(self._stores, step)
            store, plan = self._current
            return store, plan[step]

    def close(self) -> None:
        """Cancels the building of the next epoch's store; call it after an error, too."""
        self._cancel.set()
        self._thread.shutdown(cancel_futures=True)

    def remove(self) -> None:
        """Removes the stores of all epochs, at the end of the run."""
        if self._stores:
            self._stores.remove()

    def _start_epoch(self, stores: EpochStores, step: int) -> None:
        epoch = step // self.steps_per_epoch
        if epoch == 0:
            self._current = self.first
        elif self._next and self._next[0] == epoch:
            self._current = self._next[1].result()
        else:  # a resumed run
            self._current = self._plan_epoch(epoch, stores.open(epoch))
        self._epoch = epoch
        if (epoch + 1) * self.steps_per_epoch < self.num_steps:
            oldest = (step - _MAX_RANK_LAG) // self.steps_per_epoch
            self._next = epoch + 1, self._thread.submit(self._build, stores, epoch + 1, oldest)

    def _build(self, stores: EpochStores, epoch: int, oldest: int) -> StoreAndPlan:
        stores.remove_before(oldest)
        return self._plan_epoch(epoch, stores.open(epoch, self._cancel))

    def _plan_epoch(self, epoch: int, store: TokenStore) -> StoreAndPlan:
        plan = self._make_plan(store, template=self.first[1])
        plan[epoch * self.steps_per_epoch]  # plans the epoch now, which takes a while
        return store, plan
