"""The micro-batches that one rank runs in each update."""

import numpy as np

from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.epochs import EpochPlans
from transformer_mt.data.batching.fixed_buffers import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.mixing import epoch_weights
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World


class BatchIterator:
    """One rank's micro-batches of every update.

    Args:
        job: The configuration.
        train: Training pairs.
        epoch_stores: Their stores with a new segmentation each epoch (subword regularisation).
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        fixed_shape: Whether every batch has the same shape, for a compiled training step.
        world: Ranks that share the updates.

    Attributes:
        epochs: Store and plan of each epoch.
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
        self._train, self._max_tokens, self._world = train, max_tokens, world
        weights = epoch_weights(job.data, train.source_sizes)
        self.epochs = EpochPlans(
            train, job.train.batch_tokens, job.train.seed, weights, epoch_stores
        )
        self.buffer_shape: BufferShape | None = None
        if fixed_shape:
            self.buffer_shape = plan_buffers(*self.epochs.first, max_tokens, world.size)

    def read(self, step: int) -> tuple[list[Batch], int]:
        """This rank's micro-batches, and the number of target tokens of the whole update.

        Args:
            step: Number of the update, from 1.
        """
        (store, batch), world = self.epochs.global_batch(step - 1), self._world
        if self.buffer_shape is None:
            parts = micro_batches(store, batch, self._max_tokens, world.rank, world.size)
        else:
            parts = buffered_batches(store, batch, self.buffer_shape, world.rank, world.size)
        if world.device.type == "cuda":
            parts = [part.pin_memory() for part in parts]
        return parts, batch.num_targets

    def worst_case(self) -> list[Batch]:
        """Micro-batches that need the most memory: those of the longest pairs."""
        longer = np.maximum(self._train.src.lengths, self._train.tgt.lengths)
        shorter = np.minimum(self._train.src.lengths, self._train.tgt.lengths)
        order = np.lexsort((-shorter, -longer))[: max(1, self._max_tokens // int(longer.max()))]
        num_targets = int(self._train.tgt.lengths[order].sum())
        return micro_batches(self._train, GlobalBatch((order,), num_targets), self._max_tokens)

    def pair_indices(self, step: int) -> list[int]:
        """Indices in the store of all pairs of an update, over all ranks."""
        _, batch = self.epochs.global_batch(step - 1)
        return [int(pair) for chunk in batch.chunks for pair in chunk]
