"""step → the pairs of an update, over all epochs, whether each has tokens of its own or not."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock

from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.store.epoch_stores import SampledCorpus
from transformer_mt.data.store.token_store import TokenStore

_APART = 100
"""Updates that one rank may be ahead of another, by far."""

Epoch = tuple[TokenStore, BatchPlan]


class Epochs:
    """The global batches of a run, and the store to read each from.

    With subword regularisation, an epoch has a store of its own, which a thread has made by worker
    processes while the epoch before it is trained on. All epochs have as many updates as the first,
    of the same size but for what chance does to the number of tokens.

    Args:
        store: The training pairs.
        batch_tokens: Most target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source comes in an epoch.
        sampled: The stores of the epochs; without, all are ``store``.

    Attributes:
        num_steps: Updates of the run, once they are known: no epoch after them is made.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        sampled: SampledCorpus | None = None,
    ):
        self.num_steps: float = math.inf
        self._plan = partial(BatchPlan, batch_tokens=batch_tokens, seed=seed, weights=weights)
        self._sampled = sampled
        if sampled:  # kept to the end: it says how many updates an epoch has
            store = sampled.open(0)
        self.first: Epoch = store, self._plan(store)
        self._epoch, self._open = -1, self.first
        self._next: tuple[int, Future[Epoch]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-epoch")
        self._cancel, self._alone = Event(), Lock()

    @property
    def steps_per_epoch(self) -> int:
        """Updates in an epoch; the same for every epoch."""
        return self.first[1].steps_per_epoch

    def at(self, step: int) -> tuple[TokenStore, GlobalBatch]:
        """The global batch of an update, counted from 0 over all epochs, and the store it is of.

        Waits where the store of its epoch is not ready yet. Any thread may ask.

        Raises:
            InputError: That store cannot be made.
        """
        with self._alone:
            if self._sampled and step // self.steps_per_epoch != self._epoch:
                self._enter(self._sampled, step)
            store, plan = self._open
            return store, plan[step]

    def close(self) -> None:
        """Gives up the epoch to come, if it is being made; call it also after an error."""
        self._cancel.set()
        self._thread.shutdown(cancel_futures=True)

    def remove(self) -> None:
        """Removes the stores of single epochs: the run is over."""
        if self._sampled:
            self._sampled.remove()

    def _enter(self, sampled: SampledCorpus, step: int) -> None:
        epoch = step // self.steps_per_epoch
        if epoch == 0:
            self._open = self.first
        elif self._next and self._next[0] == epoch:
            self._open = self._next[1].result()
        else:  # a run that goes on
            self._open = self._plan_of(epoch, sampled.open(epoch))
        self._epoch = epoch
        if (epoch + 1) * self.steps_per_epoch < self.num_steps:
            oldest = (step - _APART) // self.steps_per_epoch
            self._next = epoch + 1, self._thread.submit(self._make, sampled, epoch + 1, oldest)

    def _make(self, sampled: SampledCorpus, epoch: int, oldest: int) -> Epoch:
        sampled.forget(oldest)
        return self._plan_of(epoch, sampled.open(epoch, self._cancel))

    def _plan_of(self, epoch: int, store: TokenStore) -> Epoch:
        plan = self._plan(store, like=self.first[1])
        plan[epoch * self.steps_per_epoch]  # puts the epoch in order, which takes a while
        return store, plan
