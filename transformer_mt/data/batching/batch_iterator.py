"""From the plan of updates to the batches that a rank runs."""

import numpy as np

from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.epochs import Epochs
from transformer_mt.data.batching.fixed_buffers import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.mixing import epoch_weights
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.store.epoch_stores import SampledCorpus
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World


class BatchIterator:
    """This rank's share of every update.

    Args:
        job: The configuration.
        train: Training pairs.
        sampled: Their stores for single epochs, with subword regularisation.
        max_tokens: Most tokens, of either side, in one forward pass.
        fixed: Whether every batch is to have the same shape, for a compiled step.
        world: Ranks that share the updates.
    """

    def __init__(
        self,
        job: TrainJob,
        train: TokenStore,
        sampled: SampledCorpus | None,
        max_tokens: int,
        fixed: bool,
        world: World,
    ):
        self._train, self._max_tokens, self._world = train, max_tokens, world
        weights = epoch_weights(job.data, train.sources)
        self.epochs = Epochs(train, job.train.batch_tokens, job.train.seed, weights, sampled)
        self.buffers: BufferShape | None = None
        """The shape of every batch, if there is one."""
        if fixed:
            self.buffers = plan_buffers(*self.epochs.first, max_tokens, world.size)

    def read(self, step: int) -> tuple[list[Batch], int]:
        """This rank's share of an update, and the target tokens of the whole update."""
        (store, batch), world = self.epochs.at(step - 1), self._world
        if self.buffers is None:
            parts = micro_batches(store, batch, self._max_tokens, world.rank, world.size)
        else:
            parts = buffered_batches(store, batch, self.buffers, world.rank, world.size)
        if world.device.type == "cuda":
            parts = [part.pinned() for part in parts]
        return parts, batch.num_targets

    def worst(self) -> list[Batch]:
        """The parts of an update that asks for as much memory as any: the longest pairs."""
        longest = np.maximum(self._train.src.lengths, self._train.tgt.lengths)
        sides = np.minimum(self._train.src.lengths, self._train.tgt.lengths)
        order = np.lexsort((-sides, -longest))[: max(1, self._max_tokens // int(longest.max()))]
        targets = int(self._train.tgt.lengths[order].sum())
        return micro_batches(self._train, GlobalBatch((order,), targets), self._max_tokens)

    def pairs(self, step: int) -> list[int]:
        """The pairs of an update, by their places in the store."""
        return [int(pair) for chunk in self.epochs.at(step - 1)[1].chunks for pair in chunk]
