"""Subword regularisation during training: the pairs of each update in a newly sampled segmentation.

The segmentation of a pair is a function of seed, epoch and pair, so nothing is stored: worker
processes sample the next updates of a rank while it trains. The number of tokens is known only
then, so updates are planned from the stored segmentation, by its mean growth.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from transformer_mt.data.batching.mixing import sample_epoch
from transformer_mt.data.batching.plan import GlobalBatch, Indices, global_batch
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.store.workers import WorkerKilledError, map_ordered
from transformer_mt.data.subwords.subword_regularization import SubwordRegularizer
from transformer_mt.data.subwords.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_SEED = 4
"""Last number of the seeds; those of other generators differ."""

_GROWTH_PAIRS = 2**11
"""Pairs from which the growth is estimated."""

_NICENESS = 10
"""Niceness of the worker processes."""


class Share(NamedTuple):
    """One rank's share of an update, in the stored segmentation."""

    epoch: int
    pairs: Indices
    """Indices of the pairs, chunk by chunk. If there are none, one for a placeholder."""
    sizes: list[int]
    """Number of pairs of each chunk."""
    src: Side
    """Source sequences of the pairs."""
    tgt: Side
    """Target sequences of the pairs."""

    @classmethod
    def read(cls, store: TokenStore, epoch: int, pairs: Indices, sizes: list[int]) -> Self:
        """Copies the sequences of pairs from a store."""
        src, tgt = (Side.from_lengths(*side.gather(pairs)) for side in (store.src, store.tgt))
        return cls(epoch, pairs, sizes, src, tgt)


@dataclass(frozen=True)
class SampledSegmentation:
    """Worker task: samples the segmentation of a share.

    A sequence that would become longer than ``max_length`` keeps its stored segmentation, so that
    memory, positions and buffers that fit the corpus fit every epoch.

    Args:
        vocabulary: The SentencePiece model that encoded the corpus.
        strength: Strength of the ``SubwordRegularizer``.
        seed: Seed of all epochs.
        max_length: Length of the longest sequence of the corpus.
    """

    vocabulary: Path
    strength: float
    seed: int
    max_length: int

    def __call__(self, share: Share) -> tuple[TokenStore, GlobalBatch]:
        """The pairs of the share in a store of their own, and the batch of all of them."""
        seeds = ([self.seed, share.epoch, pair, _SEED] for pair in share.pairs.tolist())
        rngs = [np.random.default_rng(seed) for seed in seeds]
        src, tgt = (self._sample(side, rngs) for side in (share.src, share.tgt))
        chunks = np.split(np.arange(len(rngs)), np.cumsum(share.sizes))[:-1]
        store = TokenStore(src, tgt, max_length_bound=self.max_length)
        return store, global_batch(chunks, [tgt.lengths_of(chunk) for chunk in chunks])

    def growth(self, store: TokenStore, weights: Sequence[float]) -> tuple[float, float]:
        """Mean growth of source and target sequences: sampled tokens for each stored one.

        Args:
            store: The training pairs.
            weights: How often a pair of each source of the store occurs in an epoch.

        Raises:
            InputError: The vocabulary does not suit the sampling, or the tokens are damaged.
        """
        pairs = sample_epoch(store, weights, _GROWTH_PAIRS)
        stored = Share.read(store, 0, pairs, [len(pairs)])
        try:
            sampled, _ = self(stored)
        except IndexError:  # ids beyond the vocabulary
            store.verify()
            raise
        src, tgt = (
            len(after.tokens) / len(before.tokens)
            for after, before in ((sampled.src, stored.src), (sampled.tgt, stored.tgt))
        )
        return src, tgt

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _sample(self, side: Side, rngs: list[np.random.Generator]) -> Side:
        sampled = Side.from_lengths(*self._regularizer(side.tokens, side.lengths, rngs))
        return _limit_length(sampled, side, self.max_length)

    @cached_property
    def _regularizer(self) -> SubwordRegularizer:
        return SubwordRegularizer(Tokenizer(self.vocabulary), self.strength)


class SampledShares:
    """One rank's share of every update, sampled ahead by worker processes.

    Args:
        task: Samples the segmentation.
        share: Returns the stored share of an update, by its number.
        processes: Maximum number of worker processes; 0 works in this process.
    """

    def __init__(self, task: SampledSegmentation, share: Callable[[int], Share], processes: int):
        self._task, self._share, self._processes = task, share, processes
        self._steps = range(0)
        self._results: Generator[tuple[TokenStore, GlobalBatch], None, None] | None = None

    def read(self, step: int, last_step: int) -> tuple[TokenStore, GlobalBatch]:
        """The share of an update; sampling of the next ones, up to ``last_step``, is started."""
        steps = range(step, last_step + 1)
        if self._results is None or self._steps != steps:
            self.close()
            self._results = map_ordered(
                self._task, map(self._share, steps), self._processes, nice=_NICENESS
            )
        self._steps = steps[1:]
        try:
            return next(self._results)
        except WorkerKilledError:  # perhaps by a signal to the whole group, which ends the training
            log.warning("warning: a process that samples segmentations was killed")
            self.close()  # the next update starts new processes
            return self._task(self._share(step))

    def close(self) -> None:
        """Ends the worker processes."""
        if self._results is not None:
            self._results.close()
            self._results = None


def _limit_length(sampled: Side, stored: Side, max_length: int) -> Side:
    """The sampled sequences, with the stored ones in place of those over ``max_length``."""
    too_long = sampled.lengths > max_length
    if not too_long.any():
        return sampled
    both = Side.from_lengths(
        np.concatenate([sampled.tokens, stored.tokens]),
        np.concatenate([sampled.lengths, stored.lengths]),
    )
    return Side.from_lengths(*both.gather(np.arange(len(sampled)) + too_long * len(sampled)))
