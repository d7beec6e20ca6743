"""Plan of the global batches of a corpus of any size, one window at a time.

Memory and time do not grow with the corpus. The next window is planned, read ahead and verified by
a thread while the updates of the current one are trained on.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.plan import (
    CHUNKS_PER_BATCH,
    BatchPlan,
    GlobalBatch,
    Indices,
    Plan,
    balanced_chunk_boundaries,
    chunk_boundaries,
    combine_chunks,
    global_batch,
)
from transformer_mt.data.batching.windows import Runs, Windows, count_windows
from transformer_mt.data.store.blocks import BLOCK_PAIRS, Advice
from transformer_mt.data.store.token_store import TokenStore

_SAMPLE_PAIRS = 2**17
"""Pairs from which the number of updates is estimated."""

_MARGIN = 1.0005
"""Windows differ so little in the tokens that their chunks hold."""

_WINDOW_SEED = 3
"""Last number of the seeds, which no other generator has."""


def make_plan(
    store: TokenStore,
    batch_tokens: int,
    seed: int,
    weights: Sequence[float] = (),
    *,
    window_pairs: int,
) -> Plan:
    """The plan of a corpus: by windows if it has twice as many pairs as a window, or more.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store occurs in an epoch.
        window_pairs: Minimum number of pairs in a window.
    """
    number = count_windows(store, weights, window_pairs, batch_tokens)
    if number == 1:
        return BatchPlan(store, batch_tokens, seed, weights)
    return WindowedPlan(store, batch_tokens, seed, weights, number)


class WindowedPlan:
    """The global batches of every epoch, planned one window at a time.

    Every window is planned as ``BatchPlan`` plans an epoch, with a number of updates that is the
    same for all windows of all epochs, so that the window of an update follows from its number.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store occurs in an epoch.
        number: Number of windows in an epoch.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float],
        number: int,
    ):
        self._store, self._seed, self._number = store, seed, number
        self._windows = Windows(store, seed, weights, number)
        self._steps = self._count(batch_tokens)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-window")
        self._planned: dict[int, Future[_PlannedWindow]] = {}

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch, the same for every epoch."""
        return self._steps * self._number

    @property
    def num_windows(self) -> int:
        """Number of windows in an epoch."""
        return self._number

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs.

        Raises:
            InputError: The tokens of its window do not match their checksums.
        """
        number, index = divmod(step, self._steps)
        if self._planned.keys() != {number, number + 1}:
            self._plan_from(number)
        return self._planned[number].result().batch(index)

    def survey(self, count: int) -> list[GlobalBatch]:
        """The first updates of a window with the most source tokens; all have as many targets."""
        number = max(range(self._number), key=lambda n: int(self._runs(n).src_tokens.sum()))
        window = self._plan(number)
        return [window.batch(index) for index in range(min(self._steps, count))]

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _count(self, batch_tokens: int) -> int:
        """Updates of a window, such that their chunks hold at most their share of a batch."""
        sample = self._windows.sample(_SAMPLE_PAIRS, CHUNKS_PER_BATCH * batch_tokens)
        self._read_ahead(sample)
        _, (src, tgt) = self._read_lengths(sample)
        lengths = tgt[np.argsort(np.maximum(src, tgt), kind="stable")]
        chunks = chunk_boundaries(lengths, max(1, batch_tokens // CHUNKS_PER_BATCH))
        per_chunk = lengths[: chunks[-2]].sum() / (len(chunks) - 2)  # the last is not full
        return math.ceil(_MARGIN * self._windows.num_tokens / (CHUNKS_PER_BATCH * per_chunk))

    def _plan_from(self, number: int) -> None:
        """Has a window and the next one planned, and forgets the others."""
        for other in self._planned.keys() - {number, number + 1}:
            released = self._planned.pop(other)
            if not released.cancel() and not released.exception():
                released.result().release()
        for wanted in (number, number + 1):
            if wanted not in self._planned:
                self._planned[wanted] = self._thread.submit(self._plan, wanted)

    def _runs(self, number: int) -> Runs:
        return self._windows.runs(*divmod(number, self._number))

    def _plan(self, number: int) -> "_PlannedWindow":
        runs = self._runs(number)
        self._read_ahead(runs)
        pairs, (src, tgt) = self._read_lengths(runs)
        epoch, window = divmod(number, self._number)
        rng = np.random.default_rng([self._seed, epoch, window, _WINDOW_SEED])
        order = rng.permutation(np.arange(len(pairs), dtype=np.min_scalar_type(len(pairs))))
        order = order[np.argsort(np.maximum(src, tgt)[order], kind="stable")]
        pairs, src, tgt = pairs[order], src[order], tgt[order]
        # Eight chunks in every batch, unless the window has hardly more pairs than updates.
        per_batch = min(CHUNKS_PER_BATCH, len(pairs) // self._steps)
        boundaries = balanced_chunk_boundaries(tgt, per_batch * self._steps)
        src_tokens = np.add.reduceat(src, boundaries[:-1], dtype=np.int64)
        batches = combine_chunks(src_tokens, rng, per_batch)
        return _PlannedWindow(self._store, runs, pairs, boundaries, batches)

    def _read_ahead(self, runs: Runs) -> None:
        """Reads the blocks of a window from end to end, and verifies them."""
        pairs = zip(runs.starts.tolist(), runs.stops.tolist(), strict=True)
        blocks = {
            block
            for start, stop in pairs
            for block in range(start // BLOCK_PAIRS, (stop - 1) // BLOCK_PAIRS + 1)
        }
        for block in sorted(blocks):
            start, stop = block * BLOCK_PAIRS, min((block + 1) * BLOCK_PAIRS, len(self._store))
            for side in (self._store.src, self._store.tgt):
                side.advise(start, stop, Advice.SOON)
            self._store.verify_block(block)
            for side in (self._store.src, self._store.tgt):
                side.advise(start, stop, Advice.LATER)
                side.advise_offsets(start, stop, Advice.LATER)

    def _read_lengths(self, runs: Runs) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Indices of the pairs [pairs] and their lengths [2, pairs], in the smallest dtypes."""
        size = int((runs.stops - runs.starts).sum())
        pairs = np.empty(size, np.min_scalar_type(len(self._store)))
        lengths = np.empty((2, size), np.min_scalar_type(self._store.max_length))
        done = 0
        for start, stop in zip(runs.starts.tolist(), runs.stops.tolist(), strict=True):
            part = slice(done, done := done + stop - start)
            pairs[part] = np.arange(start, stop)
            for row, side in zip(lengths, (self._store.src, self._store.tgt), strict=True):
                row[part] = np.diff(side.offsets[start : stop + 1])
                side.advise_offsets(start, stop, Advice.LATER)
        self._store.unmap()  # the pages around them, too
        return pairs, lengths


@dataclass(frozen=True)
class _PlannedWindow:
    """The updates of a window."""

    store: TokenStore
    runs: Runs
    pairs: npt.NDArray[Any]
    """[pairs] indices of the pairs, chunk by chunk."""
    boundaries: Indices
    """[chunks + 1] boundaries of the chunks."""
    batches: list[Indices]
    """Chunk numbers of each batch."""

    def batch(self, index: int) -> GlobalBatch:
        """The global batch of an update of the window."""
        chunks = [
            self.pairs[self.boundaries[c] : self.boundaries[c + 1]].astype(np.int64)
            for c in self.batches[index]
        ]
        return global_batch(chunks, [self.store.tgt.lengths_of(chunk) for chunk in chunks])

    def release(self) -> None:
        """Tells the kernel that the window has been read."""
        for start, stop in zip(self.runs.starts.tolist(), self.runs.stops.tolist(), strict=True):
            for side in (self.store.src, self.store.tgt):
                side.advise(start, stop, Advice.DONE)
                side.advise_offsets(start, stop, Advice.DONE)
        self.store.unmap()
