"""Windows of a large corpus: the pairs that are planned, read and trained on together.

Each source is divided into blocks of neighbouring pairs, which are put in a new order every epoch.
The tokens of that order are then cut into as many equal parts as there are windows, and a window
holds one part of each source. So all windows have the same number of target tokens, and hence of
updates, and the same mixture of sources; yet a window is read from a few hundred places, in runs of
neighbouring pairs.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.blocks import BLOCK_PAIRS
from transformer_mt.data.store.token_store import Side, TokenStore

_BLOCKS_PER_WINDOW = 128
"""Minimum number of blocks in a window: a small one has smaller blocks."""

_MIN_UPDATES = 8
"""Minimum size of a window, in updates."""

_EPOCH_ORDER, _FRACTION_ORDER = 1, 2
"""Last numbers of the seeds: none is 0, because trailing zeros do not change a seed."""

Indices = npt.NDArray[np.int64]


class Runs(NamedTuple):
    """Runs of neighbouring pairs, in the order in which they are trained on."""

    starts: Indices
    """[runs] first pair of each run."""
    stops: Indices
    """[runs] pair after the last of each run."""
    tokens: Indices
    """[runs] target tokens of each run."""

    @property
    def num_tokens(self) -> int:
        """Number of target tokens."""
        return int(self.tokens.sum())

    def permuted(self, rng: np.random.Generator) -> Self:
        """The same runs in a random order."""
        order = rng.permutation(len(self.starts))
        return type(self)(*(column[order] for column in self))

    def cut(self, low: int, high: int, tgt: Side) -> Self:
        """The pairs whose first target token is one of the tokens ``low`` to ``high - 1``."""
        ends = np.cumsum(self.tokens)
        (first, start), (last, stop) = (self._locate(x, ends, tgt) for x in (low, high))
        starts, stops, tokens = (column[first : last + 1].copy() for column in self)
        if len(starts) and last < len(self.starts):
            stops[-1] = stop
        if len(starts):
            starts[0] = start
        for i in {0, len(starts) - 1} if len(starts) else ():  # the others are whole
            tokens[i] = tgt.offsets[stops[i]] - tgt.offsets[starts[i]]
        filled = stops > starts
        return type(self)(starts[filled], stops[filled], tokens[filled])

    def pairs(self) -> Indices:
        """[pairs] indices of all pairs."""
        lengths = self.stops - self.starts
        shifts = self.starts - (np.cumsum(lengths) - lengths)
        return np.arange(lengths.sum()) + np.repeat(shifts, lengths)

    def _locate(self, position: int, ends: Indices, tgt: Side) -> tuple[int, int]:
        """Run and pair of the first pair that begins at or after a token."""
        run = int(np.searchsorted(ends, position, side="right"))
        if run == len(ends):
            return run, 0
        offsets = tgt.offsets[self.starts[run] : self.stops[run] + 1]
        inside = offsets[0] + position - (ends[run] - self.tokens[run])
        return run, int(self.starts[run] + np.searchsorted(offsets, inside))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The runs of several parts, in order."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def count_windows(
    store: TokenStore, weights: Sequence[float], window_pairs: int, batch_tokens: int
) -> int:
    """Number of windows of at least ``window_pairs`` pairs that an epoch is divided into.

    Args:
        store: The training pairs.
        weights: How often a pair of each source occurs in an epoch; empty: once.
        window_pairs: Minimum number of pairs in a window.
        batch_tokens: Target tokens of an update; a window has at least ``_MIN_UPDATES``.
    """
    if 4 * store.max_length > batch_tokens:  # a window could have fewer pairs than updates
        return 1
    pairs, tokens = _epoch_size(store, weights)
    return max(1, int(min(pairs / window_pairs, tokens / (_MIN_UPDATES * batch_tokens))))


class Windows:
    """The windows of every epoch. Each pair is in one of them, as often as its source's weight.

    A source of weight 1.25 has all its pairs in an epoch once, and those of a quarter of its tokens
    twice: in each epoch the next quarter, in an order of its blocks that stays the same.

    Args:
        store: The training pairs.
        seed: Seed of the order of blocks.
        weights: How often a pair of each source occurs in an epoch; empty: once.
        number: Number of windows in an epoch.
    """

    def __init__(self, store: TokenStore, seed: int, weights: Sequence[float], number: int):
        self._tgt, self._seed, self._number = store.tgt, seed, number
        sources = _weighted_sources(store, weights)
        self._weights = [weight for _, _, weight in sources]
        self._epoch_pairs, self._epoch_tokens = _epoch_size(store, weights)
        pairs = int(self._epoch_pairs / (number * _BLOCKS_PER_WINDOW))
        pairs = min(BLOCK_PAIRS, max(1, pairs))
        grid = np.arange(0, len(store), pairs), store.tgt.boundaries(pairs)
        self._sources = [self._blocks(start, stop, *grid) for start, stop, _ in sources]
        self._order = lru_cache(2)(self._order_epoch)

    @property
    def num_tokens(self) -> float:
        """Number of target tokens of a window."""
        return self._epoch_tokens / self._number

    def runs(self, epoch: int, window: int) -> Runs:
        """The pairs of a window."""
        return self._part(epoch, window, self._number)

    def sample(self, pairs: int, tokens: int) -> Runs:
        """The beginning of the first window: about so many pairs, or target tokens if more."""
        share = max(pairs / self._epoch_pairs, tokens / self._epoch_tokens)
        return self._part(0, 0, max(self._number, int(1 / share)))

    def _part(self, epoch: int, part: int, parts: int) -> Runs:
        return Runs.concatenate(
            [
                runs.cut(
                    runs.num_tokens * part // parts,
                    runs.num_tokens * (part + 1) // parts,
                    self._tgt,
                )
                for runs in self._order(epoch)
            ]
        )

    def _blocks(self, start: int, stop: int, grid: Indices, tokens: Indices) -> Runs:
        """The blocks of a source, which begin with it or at a pair of the grid."""
        inner = slice(np.searchsorted(grid, start, "right"), np.searchsorted(grid, stop, "left"))
        pairs = np.concatenate([[start], grid[inner], [stop]])
        first, last = self._tgt.offsets[start], self._tgt.offsets[stop]
        return Runs(pairs[:-1], pairs[1:], np.diff(np.concatenate([[first], tokens[inner], [last]])))

    def _order_epoch(self, epoch: int) -> list[Runs]:
        """The runs of each source in an epoch, in order."""
        ordered = []
        for source, (runs, weight) in enumerate(zip(self._sources, self._weights, strict=True)):
            rng = np.random.default_rng([self._seed, epoch, source, _EPOCH_ORDER])
            whole, fraction = divmod(weight, 1.0)
            passes = [runs.permuted(rng) for _ in range(int(whole))]
            if fraction:
                passes.append(self._fraction(runs, source, epoch, fraction).permuted(rng))
            ordered.append(Runs.concatenate(passes))
        return ordered

    def _fraction(self, runs: Runs, source: int, epoch: int, fraction: float) -> Runs:
        """A part of the tokens of a source that begins where that of the last epoch ended."""
        total = runs.num_tokens
        rng = np.random.default_rng([self._seed, source, _FRACTION_ORDER])
        twice = Runs.concatenate([runs.permuted(rng)] * 2)
        start = round(epoch * fraction * total) % max(1, total)
        return twice.cut(start, start + round(fraction * total), self._tgt)


def _weighted_sources(
    store: TokenStore, weights: Sequence[float]
) -> list[tuple[int, int, float]]:
    """First pair, end and weight of each source that occurs in an epoch."""
    bounds = np.cumsum([0, *(store.source_sizes if weights else (len(store),))]).tolist()
    sources = zip(pairwise(bounds), weights or (1.0,), strict=True)
    return [(start, stop, weight) for (start, stop), weight in sources if start < stop and weight]


def _epoch_size(store: TokenStore, weights: Sequence[float]) -> tuple[float, float]:
    """Number of pairs and of target tokens of an epoch."""
    sources, offsets = _weighted_sources(store, weights), store.tgt.offsets
    return (
        sum(weight * (stop - start) for start, stop, weight in sources),
        sum(weight * int(offsets[stop] - offsets[start]) for start, stop, weight in sources),
    )
