"""Plan of the global batches of every epoch, of a token store that is planned as a whole.

"Sentence pairs were batched together by approximate sequence length" (§5.1). As in the authors'
training on 8 GPUs, each of which had sentences of one length, a global batch mixes 8 *chunks*
(``chunks.py``). The plan is a function of data, seed and epoch, never of the hardware.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.config import DataConfig
from transformer_mt.data.batching.chunks import (
    CHUNKS_PER_BATCH,
    ChunkCombiner,
    chunk_boundaries,
    equal_chunk_boundaries,
)
from transformer_mt.data.store.token_store import Indices, TokenStore
from transformer_mt.errors import InputError

_MAX_EPOCH_FACTOR = 100
"""Maximum size of an epoch relative to the corpus; a larger one is refused."""


@dataclass(frozen=True)
class GlobalBatch:
    """The pairs of one update, over all ranks."""

    store: TokenStore
    """Where the pairs are."""
    chunks: tuple[Indices, ...]
    """Indices of pairs, each chunk of similar lengths."""
    num_targets: int
    """Number of target tokens: the denominator of the update's loss."""


class BatchPlan:
    """The global batches of every epoch, each pair exactly once per epoch.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch; a longer pair is a batch of
            its own.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store occurs in an epoch. With weight 1.25,
            every pair occurs once, and a quarter of them, different in each epoch, twice; batches
            may then be slightly larger than ``batch_tokens``, or clearly, where the lengths of few
            long pairs differ much. Without weights, once.
        num_updates: Number of updates in an epoch, of about as many target tokens each, whatever
            ``batch_tokens``; at most the number of pairs. None: about as few as it allows.

    Attributes:
        store: The training pairs.
        steps_per_epoch: Number of updates in an epoch, the same for every epoch.
        may_exceed: Whether updates of several pairs may have more than ``batch_tokens``, because of
            ``num_updates``.
        num_oversized: Number of updates in an epoch that are one pair of more than
            ``batch_tokens``.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        num_updates: int | None = None,
    ):
        self.store, self._seed = store, seed
        self._src_lengths = _compact(store.src.lengths)
        tgt_lengths = _compact(store.tgt.lengths)
        # Both sides of a chunk should have similar lengths, to keep padding low.
        max_lengths = np.maximum(self._src_lengths, tgt_lengths)
        # In every epoch, a position holds a pair with the same sort keys (or nearly the same, where
        # a source has a fractional weight), so that one set of chunk boundaries serves all epochs.
        keys = [tgt_lengths, max_lengths]
        self._weights = weights if set(weights) - {1} else ()
        if self._weights:
            keys.append(_compact(np.repeat(np.arange(len(weights)), store.source_sizes)))
        self._sort_keys = np.stack(keys)
        # Their order within one length does not matter.
        first_epoch = self._sorted_pairs(0, np.random.default_rng([seed]))
        # Pairs of one length are shuffled, so that each chunk has an average number of tokens on
        # both sides: sorted, those with a long source would share one chunk, those with a long
        # target another.
        shuffled = np.random.default_rng([seed]).permutation(len(first_epoch))
        by_length = np.argsort(max_lengths[first_epoch[shuffled]], kind="stable")
        self._position_to_sorted = _compact(shuffled[by_length])
        lengths = tgt_lengths[first_epoch[self._position_to_sorted]]
        per_batch = CHUNKS_PER_BATCH
        if num_updates is None:
            self._boundaries = chunk_boundaries(lengths, max(1, batch_tokens // per_batch))
        else:
            per_batch = min(per_batch, len(lengths) // num_updates)
            self._boundaries = equal_chunk_boundaries(lengths, per_batch * num_updates)
        targets = np.add.reduceat(lengths, self._boundaries[:-1], dtype=np.int64)
        fixed = num_updates is not None
        self._combine_chunks = ChunkCombiner(targets, batch_tokens, per_batch, fixed=fixed)
        self.steps_per_epoch = self._combine_chunks.num_batches
        self.may_exceed = self._combine_chunks.may_exceed
        self.num_oversized = 0 if fixed else int((targets > batch_tokens).sum())
        self._epoch = -1
        self._chunks: list[npt.NDArray[Any]] = []
        self._batches: list[Indices] = []

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._plan_epoch(epoch)
        return global_batch(self.store, map(self._chunks.__getitem__, self._batches[index]))

    def _plan_epoch(self, epoch: int) -> None:
        rng = np.random.default_rng([self._seed, epoch])
        pairs = self._sorted_pairs(epoch, rng)[self._position_to_sorted]
        self._chunks = np.split(pairs, self._boundaries[1:-1])
        starts = self._boundaries[:-1]
        src_tokens = np.add.reduceat(self._src_lengths[pairs], starts, dtype=np.int64)
        self._batches = self._combine_chunks(src_tokens, rng)
        self._epoch = epoch

    def _sorted_pairs(self, epoch: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Indices of the pairs of an epoch, shuffled and then sorted by their keys."""
        pairs = _compact(np.arange(len(self.store)))
        pairs = rng.permutation(self._weighted_pairs(epoch) if self._weights else pairs)
        return pairs[np.lexsort(self._sort_keys[:, pairs])]

    def _weighted_pairs(self, epoch: int) -> npt.NDArray[Any]:
        """Indices of the pairs that occur in an epoch, some of them repeatedly."""
        selected, start = [], 0
        sorted_pairs = np.lexsort(self._sort_keys)  # source by source
        for size, weight in zip(self.store.source_sizes, self._weights, strict=True):
            pairs = sorted_pairs[start : start + size]
            whole, fraction = divmod(weight, 1.0)
            selected += [pairs] * int(whole)
            if count := round(fraction * size):
                # Every (size / count)-th pair, starting in each epoch where the last one stopped.
                steps = (np.arange(count) + epoch * fraction % 1.0) * (size / count)
                selected.append(pairs[np.minimum(steps.astype(np.int64), size - 1)])
            start += size
        return _compact(np.concatenate(selected))


def global_batch(store: TokenStore, chunks: Iterable[npt.NDArray[Any]]) -> GlobalBatch:
    """A global batch of chunks of pairs, each sorted by the lengths of their targets."""
    by_length, num_targets = [], 0
    for chunk in chunks:
        indices = chunk.astype(np.int64)
        lengths = store.pair_lengths(indices)[1]
        by_length.append(indices[np.argsort(lengths, kind="stable")])
        num_targets += int(lengths.sum())
    return GlobalBatch(store, tuple(by_length), num_targets)


def epoch_weights(config: DataConfig, source_sizes: Sequence[int]) -> list[float]:
    """How often a pair of each training source occurs in an epoch; empty: each pair once.

    Temperature-based sampling as in multilingual training: with p the sources' shares of all pairs,
    batches sample from them in proportion to p^(1/T). T = 1 keeps the shares, a large T makes them
    equal; the pairs of the largest source occur once. Of each source at least one pair occurs, or
    ``ShardedPlan`` refuses it.

    Args:
        config: Weights or temperature.
        source_sizes: Number of pairs of each source, after cleaning.

    Raises:
        InputError: The weights make an epoch of more than ``_MAX_EPOCH_FACTOR`` times the corpus.
    """
    if not config.weights and config.temperature == 1 and all(source_sizes):
        return []
    weights, largest = config.weights or [1.0] * len(source_sizes), max(source_sizes)
    times = [
        max(weight, 1 / size) * (largest / size) ** (1 - 1 / config.temperature) if size else 0.0
        for weight, size in zip(weights, source_sizes, strict=True)
    ]
    total, pairs = np.dot(times, source_sizes), sum(source_sizes)
    if total > _MAX_EPOCH_FACTOR * pairs:
        raise InputError(
            f"data.weights={list(config.weights)} make an epoch of {total:.3g} pairs from "
            f"{pairs:,}: a weight is how often a pair occurs in an epoch; set it as in "
            "data.weights=[1, 0.5]"
        )
    return times


def _compact(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Non-negative numbers in the smallest dtype: saves memory, and NumPy sorts 16 bits faster."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
