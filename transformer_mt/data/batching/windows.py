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
    src_tokens: Indices
    """[runs] source tokens of each run."""
    tgt_tokens: Indices
    """[runs] target tokens of each run."""

    @property
    def num_tokens(self) -> int:
        """Number of target tokens."""
        return int(self.tgt_tokens.sum())

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return int((self.stops - self.starts).sum())

    def spans(self) -> list[tuple[int, int]]:
        """First pair and end of each run."""
        return list(zip(self.starts.tolist(), self.stops.tolist(), strict=True))

    def pairs(self, positions: npt.NDArray[np.integer]) -> Indices:
        """The pairs at positions in the order of the runs, from 0."""
        ends = np.cumsum(self.stops - self.starts)
        run = np.searchsorted(ends, positions, side="right")
        return self.stops[run] - (ends[run] - positions)

    def permuted(self, rng: np.random.Generator, groups: int) -> Self:
        """The same runs in a random order, divided into similar groups.

        The groups have runs of all ratios of source to target tokens: with the ratios left to
        chance, the window with the most source tokens would need larger buffers than the others.
        """
        ratios = (self.src_tokens + 1) / (self.tgt_tokens + 1)
        by_ratio = np.argsort(ratios, kind="stable")
        groups = min(groups, 1 + len(by_ratio))  # the weight of a source may be tiny
        rounds = 1 + len(by_ratio) // groups
        group = np.concatenate([rng.permutation(groups) for _ in range(rounds)])[: len(by_ratio)]
        shuffled = rng.permutation(len(by_ratio))
        order = by_ratio[shuffled[np.argsort(group[shuffled], kind="stable")]]
        return type(self)(*(column[order] for column in self))

    def cut(self, low: int, high: int, store: TokenStore) -> Self:
        """The pairs whose first target token is one of the tokens ``low`` to ``high - 1``."""
        ends = np.cumsum(self.tgt_tokens)
        (first, start), (last, stop) = (self._locate(x, ends, store.tgt) for x in (low, high))
        part = type(self)(*(column[first : last + 1].copy() for column in self))
        if not len(part.starts):
            return part
        if last < len(self.stops):
            part.stops[-1] = stop
        part.starts[0] = start
        ends = np.array([0, len(part.starts) - 1])  # the others are whole
        for side, tokens in ((store.src, part.src_tokens), (store.tgt, part.tgt_tokens)):
            tokens[ends] = side.offsets[part.stops[ends]] - side.offsets[part.starts[ends]]
        return type(self)(*(column[part.stops > part.starts] for column in part))

    def _locate(self, position: int, ends: Indices, tgt: Side) -> tuple[int, int]:
        """Run and pair of the first pair that begins at or after a token."""
        run = int(np.searchsorted(ends, position, side="right"))
        if run == len(ends):
            return run, 0
        offsets = tgt.offsets[self.starts[run] : self.stops[run] + 1]
        inside = offsets[0] + position - (ends[run] - self.tgt_tokens[run])
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
        num_windows: Number of windows in an epoch.
    """

    def __init__(self, store: TokenStore, seed: int, weights: Sequence[float], num_windows: int):
        self._store, self._seed, self._num_windows = store, seed, num_windows
        sources = _weighted_sources(store, weights)
        self._weights = [weight for _, _, weight in sources]
        self._epoch_pairs, self._epoch_tokens = _epoch_size(store, weights)
        size = max(1, int(self._epoch_pairs / (num_windows * _BLOCKS_PER_WINDOW)))
        size = min(BLOCK_PAIRS, size)
        self._sources = [self._blocks(start, stop, size) for start, stop, _ in sources]
        self._order = lru_cache(2)(self._order_epoch)

    @property
    def num_tokens(self) -> float:
        """Number of target tokens of a window."""
        return self._epoch_tokens / self._num_windows

    def runs(self, epoch: int, window: int) -> Runs:
        """The pairs of a window."""
        return self._part(epoch, window, self._num_windows)

    def sample(self, pairs: int, tokens: int) -> Runs:
        """The beginning of the first window: about so many pairs, or target tokens if more."""
        share = max(pairs / self._epoch_pairs, tokens / self._epoch_tokens)
        return self._part(0, 0, max(self._num_windows, int(1 / share)))

    def _part(self, epoch: int, part: int, parts: int) -> Runs:
        return Runs.concatenate(
            [
                runs.cut(
                    runs.num_tokens * part // parts,
                    runs.num_tokens * (part + 1) // parts,
                    self._store,
                )
                for runs in self._order(epoch)
            ]
        )

    def _blocks(self, start: int, stop: int, size: int) -> Runs:
        """The blocks of a source, which begin with it or at a multiple of their size."""
        inner = slice(start // size + 1, -(-stop // size))
        pairs = np.concatenate([[start], np.arange(inner.start, inner.stop) * size, [stop]])
        first_tokens = (
            np.concatenate(
                [side.offsets[[start]], side.boundaries(size)[inner], side.offsets[[stop]]]
            )
            for side in (self._store.src, self._store.tgt)
        )
        return Runs(pairs[:-1], pairs[1:], *map(np.diff, first_tokens))

    def _order_epoch(self, epoch: int) -> list[Runs]:
        """The runs of each source in an epoch, in order."""
        ordered = []
        for source, (runs, weight) in enumerate(zip(self._sources, self._weights, strict=True)):
            rng = np.random.default_rng([self._seed, epoch, source, _EPOCH_ORDER])
            whole, fraction = divmod(weight, 1.0)
            passes = [runs] * int(whole)
            if fraction:
                passes.append(self._fraction(runs, source, epoch, fraction))
            groups = max(1, round(self._num_windows / weight))  # windows per pass
            ordered.append(Runs.concatenate([part.permuted(rng, groups) for part in passes]))
        return ordered

    def _fraction(self, runs: Runs, source: int, epoch: int, fraction: float) -> Runs:
        """A part of the tokens of a source that begins where that of the last epoch ended."""
        total = runs.num_tokens
        rng = np.random.default_rng([self._seed, source, _FRACTION_ORDER])
        twice = Runs.concatenate([runs.permuted(rng, 1)] * 2)
        # Both ends are rounded, not the size: even a source of one token has its share of epochs.
        start, stop = (round(number * fraction * total) for number in (epoch, epoch + 1))
        first = start % max(1, total)
        return twice.cut(first, first + stop - start, self._store)


def _weighted_sources(store: TokenStore, weights: Sequence[float]) -> list[tuple[int, int, float]]:
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
