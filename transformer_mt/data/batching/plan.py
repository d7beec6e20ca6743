"""(seed, epoch) → the plan of global batches; this rank's share of one → micro-batches.

"Sentence pairs were batched together by approximate sequence length" (§5.1). As in the authors'
training on 8 GPUs, where each GPU had sentences of one length, an update here mixes 8 *chunks*:
each holds pairs of about the same length, and chunks of any lengths meet in an update. The plan
depends on the data, the seed and the epoch, never on the hardware.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.errors import InputError

CHUNKS_PER_BATCH = 8
"""Chunks of one length in an update: the paper's number of GPUs."""

_BLOCK = 32
"""Batches that exchange chunks until all have about as many source tokens."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GlobalBatch:
    """The pairs of one update, over all ranks."""

    chunks: tuple[Indices, ...]
    """Indices of pairs, each chunk of about one length."""
    num_targets: int
    """Target tokens in all: the denominator of the update's loss."""


class BatchPlan:
    """The global batches of every epoch, each pair exactly once an epoch.

    Args:
        store: The training pairs.
        batch_tokens: Most target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store comes in an epoch; of a source of
            weight 1.25 every pair comes once, and a fourth of them, others in each epoch, twice;
            updates may then be a little larger than ``batch_tokens``. Without weights, once.
        like: A plan of the same pairs in another segmentation. This one has as many updates,
            whatever their size, and takes the same pairs of each source in an epoch.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        *,
        like: "BatchPlan | None" = None,
    ):
        self._src_lengths, self._tgt_lengths = (
            _compact(side.lengths) for side in (store.src, store.tgt)
        )
        self._seed = seed
        # Both sides of a chunk are to be of about one length; padding is the cost otherwise.
        self._longer = np.maximum(self._src_lengths, self._tgt_lengths)
        # The kind of a pair, as keys to sort by. Every epoch puts a pair of the same kind in each
        # place (or, where a source has a fractional weight, of nearly the same), so all cut alike.
        self._kind = [self._tgt_lengths, self._longer]
        self._sizes, self._weights = [len(store)], [1.0]
        if any(weight != 1 for weight in weights):
            self._sizes, self._weights = list(store.sources), list(weights)
            self._kind.append(_compact(np.repeat(np.arange(len(weights)), self._sizes)))
        self._draw = like._drawn if like else self._drawn
        template = self._sorted_by_kind(self._draw(0))
        # Of pairs of one length, those with a long source would else meet in one chunk, and those
        # with a long target in another: at random, every chunk has its mean of both.
        mixed = np.random.default_rng([seed]).permutation(len(template))
        self._places = _compact(mixed[np.argsort(self._longer[template[mixed]], kind="stable")])
        lengths = self._tgt_lengths[template[self._places]]
        self._bounds: Indices = (
            cut_into(lengths, len(like._bounds) - 1)
            if like
            else cut(lengths, max(1, batch_tokens // CHUNKS_PER_BATCH))
        )
        self._epoch = -1
        self._batches: list[Indices] = []
        self._order = template

    @property
    def steps_per_epoch(self) -> int:
        """Updates in an epoch; the same for every epoch."""
        return math.ceil((len(self._bounds) - 1) / CHUNKS_PER_BATCH)

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._plan(epoch)
        chunks = tuple(self._chunk(c) for c in self._batches[index])
        return GlobalBatch(chunks, sum(int(self._tgt_lengths[chunk].sum()) for chunk in chunks))

    def _chunk(self, number: int) -> Indices:
        chunk = self._order[self._bounds[number] : self._bounds[number + 1]]
        return chunk[np.argsort(self._tgt_lengths[chunk], kind="stable")].astype(np.int64)

    def _drawn(self, epoch: int) -> npt.NDArray[Any]:
        """The pairs that an epoch has; some more than once."""
        if len(self._weights) == 1 and self._weights[0] == 1:
            return _compact(np.arange(self._sizes[0]))
        drawn, first = [], 0
        by_kind = np.lexsort(self._kind)  # by source, to begin with
        for size, weight in zip(self._sizes, self._weights, strict=True):
            pairs = by_kind[first : first + size]
            whole, part = divmod(weight, 1.0)
            drawn += [pairs] * int(whole)
            if count := round(part * size):
                # One of every size / count neighbours, in each epoch those after the last one's.
                steps = (np.arange(count) + epoch * part % 1.0) * (size / count)
                drawn.append(pairs[np.minimum(steps.astype(np.int64), size - 1)])
            first += size
        if not drawn:
            raise InputError("data.weights leave no pair to train on: give larger ones")
        return _compact(np.concatenate(drawn))

    def _sorted_by_kind(self, pairs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return pairs[np.lexsort([numbers[pairs] for numbers in self._kind])]

    def _plan(self, epoch: int) -> None:
        rng = np.random.default_rng([self._seed, epoch])
        pairs = self._sorted_by_kind(rng.permutation(self._draw(epoch)))
        self._order = pairs[self._places]
        sources = np.add.reduceat(self._src_lengths[self._order], self._bounds[:-1], dtype=np.int64)
        chunks = rng.permutation(len(sources))
        full = len(chunks) // CHUNKS_PER_BATCH
        dealt, rest = np.split(chunks, [full * CHUNKS_PER_BATCH])
        blocks = np.array_split(dealt.reshape(full, CHUNKS_PER_BATCH), max(1, full // _BLOCK))
        batches = [batch for block in blocks for batch in deal(block, sources)]
        if len(rest):
            batches.append(rest)
        self._batches = [batches[b] for b in rng.permutation(len(batches))]
        self._epoch = epoch


def _compact(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers, none negative, in the smallest type: 100 million of them are many bytes.

    Numbers of 16 bits are also sorted several times as fast.
    """
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def cut(lengths: npt.NDArray[Any], limit: int) -> Indices:
    """Bounds of the longest runs of ``lengths`` that sum to at most ``limit``.

    A single length above the limit is a run of its own.
    """
    totals = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bounds = [0]
    while bounds[-1] < len(lengths):
        fits = int(np.searchsorted(totals, totals[bounds[-1]] + limit, side="right")) - 1
        bounds.append(max(fits, bounds[-1] + 1))
    return np.array(bounds, dtype=np.int64)


def cut_into(lengths: npt.NDArray[Any], parts: int) -> Indices:
    """Bounds of ``parts`` runs of ``lengths``, none empty, that sum to at most what they must."""
    total, longest = int(lengths.sum(dtype=np.int64)), int(lengths.max())
    limits = range(total // parts, total // parts + longest + 1)  # the last one is enough
    few = bisect_left(limits, True, key=lambda limit: len(cut(lengths, limit)) <= parts + 1)
    bounds = cut(lengths, limits[few])
    while len(bounds) <= parts:  # a little too few, as it may happen: halve the one of most pairs
        widest = int(np.diff(bounds).argmax())
        bounds = np.insert(bounds, widest + 1, (bounds[widest] + bounds[widest + 1]) // 2)
    return bounds


def deal(block: Indices, sources: Indices) -> Indices:
    """Deals chunks anew to the batches of a block, so that all get about as many source tokens.

    Every chunk has about as many target tokens; were the source tokens left to chance, a buffer
    for the largest batch would be 13% empty on text like WMT's, and so it is 0.4%.

    Args:
        block: [batches, chunks per batch].
        sources: Source tokens of every chunk.
    """
    chunks = block.reshape(-1)
    largest_first = chunks[np.argsort(-sources[chunks], kind="stable")]
    dealt = np.empty_like(block)
    totals = np.zeros(len(block), np.int64)
    for i, row in enumerate(largest_first.reshape(block.shape[::-1])):
        # The largest chunk to the smallest batch.
        dealt[np.argsort(totals, kind="stable"), i] = row
        totals += sources[dealt[:, i]]
    return dealt
