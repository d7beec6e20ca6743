"""Plan of the global batches of a corpus of any size, one shard at a time.

An epoch visits the shards in an order of its own, and each is planned as a small corpus is. Memory
and time do not grow with the corpus: a thread plans the next shard while one is trained on. The
number of updates of a shard is the same in every epoch and known from its header, so the shard of
an update follows from the update's number.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.plan import CHUNKS_PER_BATCH, BatchPlan, GlobalBatch
from transformer_mt.data.store.token_store import Corpus, TokenStore

_ORDER_SEED, _SHARD_SEED = 2, 3
"""Last numbers of the seeds: none is 0, because trailing zeros do not change a seed."""


class ShardedPlan:
    """The global batches of every epoch, each pair as often as its source's weight.

    Args:
        corpus: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch; those of shards of fewer
            than thousands of pairs may be slightly larger.
        seed: Seed of the order of shards, pairs and batches.
        weights: How often a pair of each data source occurs in an epoch; see ``BatchPlan``. In each
            shard, the pairs of a source are a whole number. Empty: once.

    Attributes:
        steps_per_epoch: Number of updates in an epoch, the same for every epoch.
    """

    def __init__(self, corpus: Corpus, batch_tokens: int, seed: int, weights: Sequence[float] = ()):
        self._corpus, self._batch_tokens = corpus, batch_tokens
        self._seed, self._weights = seed, weights
        self._updates = self._count_updates()
        self.steps_per_epoch = int(self._updates.sum())
        self._visited = np.flatnonzero(self._updates)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-shard")
        self._planned: dict[int, Future[BatchPlan]] = {}

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs.

        Raises:
            InputError: The shard is damaged.
        """
        epoch, index = divmod(step, self.steps_per_epoch)
        order, ends = self._order_of_epoch(epoch)
        position = int(np.searchsorted(ends, index, side="right"))
        number, visit = int(order[position]), epoch * len(order) + position
        wanted = (visit, visit + 1)
        self._planned = {
            v: self._planned.get(v) or self._thread.submit(self._plan_visit, v) for v in wanted
        }
        plan, updates = self._planned[visit].result(), int(self._updates[number])
        first = int(ends[position]) - updates
        return plan[epoch * updates + index - first]

    def _count_updates(self) -> npt.NDArray[np.int64]:
        """[shards] number of updates, of at most ``batch_tokens`` unless pairs are long."""
        sizes, tokens = self._corpus.source_sizes, self._corpus.source_tokens
        weights = np.array(self._weights or [1.0] * sizes.shape[1])
        whole = np.floor(weights)
        by_source = whole * sizes + np.round((weights - whole) * sizes)
        pairs = by_source.sum(axis=1)
        targets = np.maximum(1, tokens @ weights)
        # Each chunk may have half a pair too much at both ends.
        margin = CHUNKS_PER_BATCH * targets / np.maximum(1, pairs)
        capacity = np.maximum(self._batch_tokens - margin, self._batch_tokens / 2)
        return np.minimum(np.ceil(targets / capacity), pairs).astype(np.int64)

    def _order_of_epoch(self, epoch: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The shards of an epoch in order, and the number of updates at the end of each."""
        rng = np.random.default_rng([self._seed, epoch, _ORDER_SEED])
        order = rng.permutation(self._visited)
        return order, np.cumsum(self._updates[order])

    def _plan_visit(self, visit: int) -> BatchPlan:
        epoch, position = divmod(visit, len(self._visited))
        number = int(self._order_of_epoch(epoch)[0][position])
        store = TokenStore.load(self._corpus.shards[number])
        store.verify()  # which also reads it ahead
        rng = np.random.default_rng([self._seed, number, _SHARD_SEED])
        seed, updates = int(rng.integers(2**63)), int(self._updates[number])
        plan = BatchPlan(store, self._batch_tokens, seed, self._weights, updates)
        plan[epoch * plan.steps_per_epoch]  # plans the epoch
        return plan
