"""Chunks of pairs of similar length, and their combination into batches of any lengths.

A batch has eight chunks. A pair that is longer than an eighth of a batch is a chunk of its own. If
eight chunks may be too large for a batch, chunks are exchanged between batches; where that is not
enough, long chunks share a batch with fewer others.
"""

import heapq
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import Indices

CHUNKS_PER_BATCH = 8
"""Chunks in a global batch: the paper's number of GPUs."""

_SHARE = 8
"""Slots of a chunk that fits in its share of a batch."""

_SLOTS = CHUNKS_PER_BATCH * _SHARE
"""Slots of a batch, the unit in which longer chunks are measured."""

_BLOCK_BATCHES = 32
"""Batches that exchange chunks until all have about as many source tokens."""


def chunk_boundaries(lengths: npt.NDArray[Any], max_tokens: int) -> Indices:
    """Greedy boundaries of consecutive chunks with at most ``max_tokens`` tokens each.

    A single length above the maximum is a chunk of its own.

    Args:
        lengths: [pairs] number of tokens of each pair, in order.
        max_tokens: Maximum sum of the lengths in a chunk.

    Returns:
        [chunks + 1] boundaries, from 0 to the number of pairs.
    """
    starts = np.append(0, np.cumsum(lengths, dtype=np.int64))
    boundaries = [0]
    while (start := boundaries[-1]) < len(lengths):
        end = int(np.searchsorted(starts, starts[start] + max_tokens, side="right")) - 1
        boundaries.append(max(end, start + 1))
    return np.array(boundaries, dtype=np.int64)


def equal_chunk_boundaries(lengths: npt.NDArray[Any], num_chunks: int) -> Indices:
    """Boundaries of consecutive non-empty chunks with about as many tokens each.

    Args:
        lengths: [pairs] number of tokens of each pair, in order.
        num_chunks: Number of chunks, at most the number of pairs.

    Returns:
        [num_chunks + 1] boundaries, from 0 to the number of pairs.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    inner = np.arange(1, num_chunks)
    # A pair is in the chunk in which its middle lies.
    boundaries = np.searchsorted(ends - lengths / 2, inner * (ends[-1] / num_chunks))
    boundaries = np.maximum.accumulate(boundaries - inner) + inner  # at least one pair in each
    boundaries = np.clip(boundaries, inner, len(lengths) - num_chunks + inner)
    return np.array([0, *boundaries, len(lengths)], np.int64)


class ChunkCombiner:
    """Combines the chunks of an epoch into batches; the same number in every epoch.

    Args:
        targets: [chunks] number of target tokens of each chunk, the same in every epoch.
        batch_tokens: Maximum number of target tokens in a batch.
        per_batch: Number of chunks in a batch; one batch has the rest.
        fixed: Whether ``per_batch`` holds whatever ``batch_tokens``. Otherwise long chunks share a
            batch with fewer others if necessary.

    Attributes:
        num_batches: Number of batches.
        may_exceed: Whether batches of ``per_batch`` chunks may have more than ``batch_tokens``.
    """

    def __init__(self, targets: Indices, batch_tokens: int, per_batch: int, *, fixed: bool):
        self._targets, self._batch_tokens, self._per_batch = targets, batch_tokens, per_batch
        self._slots, self._batches_of_longest = targets, np.empty(0, np.int64)
        is_limited = np.sort(targets)[-per_batch:].sum() > batch_tokens
        # The result is the same in every epoch but for the order of chunks of one size.
        exchanged = self._exchanged(np.arange(len(targets))) if is_limited else []
        self.may_exceed = self._exceeds(exchanged)
        self._may_exchange = is_limited and not self.may_exceed
        if self.may_exceed and not fixed:
            self._slots = chunk_slots(targets, batch_tokens)
            self._batches_of_longest = batches_of_long_chunks(self._slots)
            self.may_exceed = False
        others = math.ceil((len(targets) - len(self._batches_of_longest)) / per_batch)
        self.num_batches = int(self._batches_of_longest.max(initial=-1)) + 1 + others

    def __call__(self, src_tokens: Indices, rng: np.random.Generator) -> list[Indices]:
        """Batches with similar numbers of source tokens, in random order.

        Args:
            src_tokens: [chunks] number of source tokens of each chunk.
            rng: Random number generator.

        Returns:
            Chunk numbers of each batch.
        """
        chunks, batches = rng.permutation(len(src_tokens)), []
        owners = self._batches_of_longest
        if len(owners):
            longest, chunks = np.split(_descending(chunks, self._slots), [len(owners)])
            by_batch = longest[np.argsort(owners, kind="stable")]
            batches = np.split(by_batch, np.cumsum(np.bincount(owners))[:-1])
        num_full = len(chunks) // self._per_batch
        full, rest = np.split(chunks, [num_full * self._per_batch])
        rows = full.reshape(num_full, self._per_batch)
        for block in np.array_split(rows, max(1, num_full // _BLOCK_BATCHES)):
            batches.extend(balance(block, src_tokens))
        if len(rest):
            batches.append(rest)
        if self._may_exchange and self._exceeds(batches):
            batches = self._exchanged(chunks)
        return [batches[b] for b in rng.permutation(len(batches))]

    def _exchanged(self, chunks: Indices) -> list[Indices]:
        """Batches of as many chunks, but with similar numbers of target tokens."""
        num_full = len(chunks) // self._per_batch
        full, rest = np.split(_descending(chunks, self._targets), [num_full * self._per_batch])
        batches = [*balance(full.reshape(num_full, self._per_batch), self._targets)]
        return [*batches, rest] if len(rest) else batches

    def _exceeds(self, batches: list[Indices]) -> bool:
        return any(self._targets[batch].sum() > self._batch_tokens for batch in batches)


def chunk_slots(targets: Indices, batch_tokens: int) -> Indices:
    """Size of each chunk in slots, of which a batch has ``_SLOTS``, rounded up.

    Args:
        targets: [chunks] number of target tokens of each chunk.
        batch_tokens: Maximum number of target tokens in a batch.

    Returns:
        [chunks] ``_SHARE`` for each that fits in its share of a batch; more for a longer one, and
        all if it fills a batch or more.
    """
    slots = np.minimum(_SLOTS, -(-_SLOTS * targets // batch_tokens))
    return np.where(targets <= batch_tokens // CHUNKS_PER_BATCH, _SHARE, slots)


def batches_of_long_chunks(slots: Indices) -> Indices:
    """Batches for the chunks that exceed their share, filled up with others.

    They are spread over all batches that an epoch needs: the longest first, each goes to the
    emptiest one.

    Args:
        slots: [chunks] size of each chunk.

    Returns:
        [chunks in these batches] batch of each chunk, by descending size.
    """
    needed = math.ceil(slots.sum() / _SLOTS)
    used: list[tuple[int, int]] = []  # a heap: slots used, and number of the batch
    batches = []
    for size in sorted(slots[slots > _SHARE].tolist(), reverse=True):
        if len(used) < needed or used[0][0] + size > _SLOTS:
            batches.append(len(used))
            heapq.heappush(used, (size, batches[-1]))
        else:
            total, batch = used[0]
            batches.append(batch)
            heapq.heapreplace(used, (total + size, batch))
    for total, batch in used:
        batches += [batch] * ((_SLOTS - total) // _SHARE)
    return np.array(batches[: len(slots)], np.int64)


def _descending(chunks: Indices, sizes: Indices) -> Indices:
    """The chunks by descending size; those of one size stay in their order."""
    return chunks[np.argsort(-sizes[chunks], kind="stable")]


def balance(block: Indices, tokens: Indices) -> Indices:
    """Exchanges chunks between batches, so that all have a similar number of tokens.

    Chunks have similar numbers of target tokens by construction. With source tokens left to chance,
    a buffer for the largest batch would be 13% empty on text like WMT's; balanced, 0.4%.

    Args:
        block: [batches, chunks per batch] chunk numbers.
        tokens: [chunks] number of tokens, of one side, of each chunk of the epoch.

    Returns:
        [batches, chunks per batch], the same chunk numbers in another order.
    """
    chunks = block.reshape(-1)
    largest_first = chunks[np.argsort(-tokens[chunks], kind="stable")]
    balanced = np.empty_like(block)
    totals = np.zeros(len(block), np.int64)
    for i, row in enumerate(largest_first.reshape(block.shape[::-1])):
        # The largest chunk goes to the smallest batch.
        balanced[np.argsort(totals, kind="stable"), i] = row
        totals += tokens[balanced[:, i]]
    return balanced
