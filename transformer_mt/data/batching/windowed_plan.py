"""Plan of the global batches of a corpus of any size, one window at a time.

Memory and time do not grow with the corpus. The next window is planned, read ahead and verified by
a thread while the updates of the current one are trained on.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.layout_cache import LayoutCache, WindowLayout
from transformer_mt.data.batching.plan import (
    CHUNKS_PER_BATCH,
    BatchPlan,
    GlobalBatch,
    Plan,
    balanced_chunk_boundaries,
    chunk_boundaries,
    combine_chunks,
    global_batch,
)
from transformer_mt.data.batching.windows import Runs, Windows, count_windows
from transformer_mt.data.store import cache
from transformer_mt.data.store.blocks import BLOCK_PAIRS, Advice
from transformer_mt.data.store.token_store import TokenStore

_SAMPLE_PAIRS = 2**17
"""Pairs from which the number of updates is estimated."""

_MARGIN = 1.0005
"""Windows differ so little in the tokens that their chunks hold."""

_MAX_OWN_MAPPINGS = 2_000
"""Maximum number of runs that get mappings of their own, of the 65,530 that a process may have."""

_VERSION = 1
"""Version of the plan of a window: files that another version has left are not read."""

_WINDOW_SEED = 3
"""Last number of the seeds, which no other generator has."""


def make_plan(
    store: TokenStore,
    batch_tokens: int,
    seed: int,
    weights: Sequence[float] = (),
    *,
    window_pairs: int,
    shared: bool = False,
) -> Plan:
    """The plan of a corpus: by windows if it has twice as many pairs as a window, or more.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store occurs in an epoch.
        window_pairs: Minimum number of pairs in a window.
        shared: Whether other ranks make the same plan: windows are then planned by one of them.
    """
    num_windows = count_windows(store, weights, window_pairs, batch_tokens)
    if num_windows == 1:
        return BatchPlan(store, batch_tokens, seed, weights)
    return WindowedPlan(store, batch_tokens, seed, weights, num_windows, shared=shared)


class WindowedPlan:
    """The global batches of every epoch, planned one window at a time.

    Every window is planned as ``BatchPlan`` plans an epoch, with a number of updates that is the
    same for all windows of all epochs, so that the window of an update follows from its number.

    Args:
        store: The training pairs.
        batch_tokens: Maximum number of target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store occurs in an epoch.
        num_windows: Number of windows in an epoch.
        shared: Whether other ranks make the same plan. The first to need a window verifies and
            plans it, and the others read the result from a file in the folder of the store.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float],
        num_windows: int,
        *,
        shared: bool,
    ):
        self._store, self._seed, self._num_windows = store, seed, num_windows
        self._windows = Windows(store, seed, weights, num_windows)
        self._steps_per_window = self._count_steps(batch_tokens)
        self._layouts: LayoutCache | None = None
        if shared and store.folder:
            key = cache.key(_VERSION, seed, list(weights), num_windows, self._steps_per_window)
            self._layouts = LayoutCache(store.folder, key)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="next-window")
        self._planned: dict[int, Future[_PlannedWindow]] = {}

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch, the same for every epoch."""
        return self._steps_per_window * self._num_windows

    @property
    def num_windows(self) -> int:
        """Number of windows in an epoch."""
        return self._num_windows

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs.

        Raises:
            InputError: The tokens of its window do not match their checksums.
        """
        window, index = divmod(step, self._steps_per_window)
        if self._planned.keys() != {window, window + 1}:
            self._plan_from(window)
        return self._planned[window].result().batch(index)

    def representative_batches(self, count: int) -> list[GlobalBatch]:
        """The first updates of a window with the most source tokens; all have as many targets."""
        number = max(range(self._num_windows), key=lambda n: int(self._runs(n).src_tokens.sum()))
        runs = self._runs(number)
        window = _PlannedWindow(self._store, runs, self._lay_out(number, runs))
        return [window.batch(index) for index in range(min(self._steps_per_window, count))]

    def close(self) -> None:
        """Ends the thread, and removes what ranks have shared."""
        self._thread.shutdown(cancel_futures=True)
        if self._layouts:
            self._layouts.clear()

    def _count_steps(self, batch_tokens: int) -> int:
        """Updates per window, such that their chunks hold at most their share of a batch."""
        sample = self._windows.sample(_SAMPLE_PAIRS, CHUNKS_PER_BATCH * batch_tokens)
        self._read_ahead(sample)
        src, tgt = self._read_lengths(sample)
        lengths = tgt[np.argsort(np.maximum(src, tgt), kind="stable")]
        chunks = chunk_boundaries(lengths, max(1, batch_tokens // CHUNKS_PER_BATCH))
        per_chunk = lengths[: chunks[-2]].sum() / (len(chunks) - 2)  # the last is not full
        return math.ceil(_MARGIN * self._windows.num_tokens / (CHUNKS_PER_BATCH * per_chunk))

    def _plan_from(self, window: int) -> None:
        """Starts to plan a window and the next one, and releases all others."""
        for other in self._planned.keys() - {window, window + 1}:
            released = self._planned.pop(other)
            if not released.cancel() and not released.exception():
                released.result().advise(Advice.COLD)
            if self._layouts and other < window:
                self._layouts.remove(other)
        for wanted in (window, window + 1):
            if wanted not in self._planned:
                self._planned[wanted] = self._thread.submit(self._plan, wanted)

    def _runs(self, number: int) -> Runs:
        return self._windows.runs(*divmod(number, self._num_windows))

    def _plan(self, number: int) -> "_PlannedWindow":
        runs = self._runs(number)
        compute = partial(self._lay_out, number, runs)
        layout = self._layouts.get(number, compute) if self._layouts else compute()
        window = _PlannedWindow(self._store, runs, layout)
        # Also where a rank of another machine has verified the window.
        window.advise(Advice.WILL_NEED)
        if len(runs.starts) <= _MAX_OWN_MAPPINGS:
            window.advise(Advice.OWN_MAPPING)
        return window

    def _lay_out(self, number: int, runs: Runs) -> WindowLayout:
        """Reads and verifies a window, and divides its pairs into updates."""
        self._read_ahead(runs)
        src, tgt = self._read_lengths(runs)
        epoch, window = divmod(number, self._num_windows)
        rng = np.random.default_rng([self._seed, epoch, window, _WINDOW_SEED])
        order = np.arange(len(tgt), dtype=np.min_scalar_type(len(tgt)))
        rng.shuffle(order)
        order = order[np.argsort(np.maximum(src, tgt)[order], kind="stable")]
        # Eight chunks in every batch, unless the window has hardly more pairs than updates.
        per_batch = min(CHUNKS_PER_BATCH, len(order) // self._steps_per_window)
        boundaries = balanced_chunk_boundaries(tgt[order], per_batch * self._steps_per_window)
        src_tokens = np.add.reduceat(src[order], boundaries[:-1], dtype=np.int64)
        return WindowLayout(order, boundaries, np.stack(combine_chunks(src_tokens, rng, per_batch)))

    def _read_ahead(self, runs: Runs) -> None:
        """Reads the blocks of a window from end to end, and verifies them."""
        blocks = {
            block
            for start, stop in runs.spans()
            for block in range(start // BLOCK_PAIRS, (stop - 1) // BLOCK_PAIRS + 1)
        }
        for block in sorted(blocks):
            start, stop = block * BLOCK_PAIRS, min((block + 1) * BLOCK_PAIRS, len(self._store))
            for side in (self._store.src, self._store.tgt):
                side.advise(start, stop, Advice.WILL_NEED)
            self._store.verify_block(block)
            for side in (self._store.src, self._store.tgt):
                side.advise(start, stop, Advice.DONT_NEED)
                side.advise_offsets(start, stop, Advice.DONT_NEED)

    def _read_lengths(self, runs: Runs) -> npt.NDArray[Any]:
        """[2, pairs] lengths of the pairs of runs, in the smallest dtype."""
        lengths = np.empty((2, runs.num_pairs), np.min_scalar_type(self._store.max_length))
        done = 0
        for start, stop in runs.spans():
            part = slice(done, done := done + stop - start)
            for row, side in zip(lengths, (self._store.src, self._store.tgt), strict=True):
                row[part] = np.diff(side.offsets[start : stop + 1])
                side.advise_offsets(start, stop, Advice.DONT_NEED)
        self._store.unmap()  # pages read around the offsets
        return lengths


@dataclass(frozen=True)
class _PlannedWindow:
    """The updates of a window."""

    store: TokenStore
    runs: Runs
    layout: WindowLayout

    def batch(self, index: int) -> GlobalBatch:
        """The global batch of an update of the window."""
        order, boundaries, batches = self.layout
        chunks = [self.runs.pairs(order[boundaries[c] : boundaries[c + 1]]) for c in batches[index]]
        return global_batch(chunks, [self.store.tgt.lengths_of(chunk) for chunk in chunks])

    def advise(self, advice: Advice) -> None:
        """Tells the kernel that the window is being read, or has been."""
        for start, stop in self.runs.spans():
            for side in (self.store.src, self.store.tgt):
                side.advise(start, stop, advice)
                side.advise_offsets(start, stop, advice)
                side.advise_offsets(start, stop, Advice.DONT_NEED)  # read by the first line
