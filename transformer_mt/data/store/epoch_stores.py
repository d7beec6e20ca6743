"""Token stores with a new segmentation of the corpus each epoch (subword regularisation).

Worker processes sample the segmentation; each epoch's store is written to disk.
"""

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event

import numpy as np

from transformer_mt.data.store import cache, token_store
from transformer_mt.data.store.progress import track_progress
from transformer_mt.data.store.token_store import EncodedPairs, Side, TokenStore
from transformer_mt.data.store.workers import map_ordered
from transformer_mt.data.subwords.subword_regularization import SubwordRegularizer
from transformer_mt.data.subwords.tokenizer import Tokenizer

log = logging.getLogger(__name__)

BLOCK_PAIRS = 10_000
"""Number of pairs per random generator, so that the result does not depend on the processes."""

_BACKGROUND_NICENESS = 10
"""Niceness of worker processes during training."""


@dataclass(frozen=True)
class SampleSegmentation:
    """Worker task: samples a segmentation of consecutive pairs.

    A sequence that would become longer than any of the corpus keeps its stored segmentation, so
    that memory, positions and buffers that fit the corpus fit every epoch.
    """

    stores: "EpochStores"
    epoch: int

    def __call__(self, pairs: range) -> EncodedPairs:
        """Samples a segmentation of a range of pairs."""
        # The last number is at least 1, so that no generator equals that of the plan's shuffling,
        # [seed, epoch]: trailing zeros do not change a seed.
        rng = np.random.default_rng([self.stores.seed, self.epoch, 1 + pairs.start])
        store = self._store
        stored = (side.slice(pairs.start, pairs.stop) for side in (store.src, store.tgt))
        src, tgt = (self._sample(side, rng) for side in stored)
        return EncodedPairs(src, tgt)

    def _sample(self, side: Side, rng: np.random.Generator) -> Side:
        sampled = Side.from_lengths(*self._regularizer(side.tokens, side.lengths, rng))
        return _limit_length(sampled, side, self._store.max_length)

    @cached_property
    def _store(self) -> TokenStore:
        return TokenStore.load(self.stores.corpus)

    @cached_property
    def _regularizer(self) -> SubwordRegularizer:
        return SubwordRegularizer(Tokenizer(self.stores.vocabulary), self.stores.strength)


@dataclass(frozen=True)
class EpochStores:
    """The token stores of all epochs, each built on first use.

    Args:
        corpus: Folder of the encoded corpus; the stores are next to it.
        vocabulary: The SentencePiece model that encoded it.
        strength: Strength of the ``SubwordRegularizer``.
        seed: Seed of all epochs.
        owner: Run folder of the run that uses the stores and may remove them.
        processes: Maximum number of worker processes; 0 works in this process.
    """

    corpus: Path
    vocabulary: Path
    strength: float
    seed: int
    owner: str
    processes: int

    @property
    def folder(self) -> Path:
        """Folder of the stores."""
        key = cache.key(self.corpus.name, self.strength, self.seed, self.owner)
        return self.corpus.with_name(f"sampled-{key}")

    def open(self, epoch: int, cancel: Event | None = None) -> TokenStore:
        """Opens, and builds if necessary, the store of an epoch: same pairs, same order.

        Args:
            epoch: Number of the epoch, from 0.
            cancel: Set by another thread to cancel the building. With it, the store is built in the
                background: at low priority, without progress messages.

        Raises:
            InputError: The store cannot be written.
            CancelledError: ``cancel`` was set.
        """
        entry = self.folder / f"epoch-{epoch:06}"
        corpus = TokenStore.load(self.corpus)
        cache.build_once(entry, lambda to: self._build(epoch, corpus, to, cancel), cancel)
        return replace(TokenStore.load(entry), line_numbers=corpus.line_numbers)

    def remove_before(self, epoch: int) -> None:
        """Removes the stores of earlier epochs, except the first epoch's."""
        for entry in sorted(self.folder.glob("epoch-??????")):
            if 0 < int(entry.name.removeprefix("epoch-")) < epoch:
                cache.remove(entry)

    def remove(self) -> None:
        """Removes all stores."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _build(self, epoch: int, corpus: TokenStore, to: Path, cancel: Event | None) -> None:
        def blocks() -> Iterator[range]:
            for start in range(0, len(corpus), BLOCK_PAIRS):
                if cancel and cancel.is_set():
                    raise CancelledError
                yield range(start, min(start + BLOCK_PAIRS, len(corpus)))

        task, nice = SampleSegmentation(self, epoch), _BACKGROUND_NICENESS if cancel else 0
        with ExitStack() as stack:
            parts = stack.enter_context(
                closing(map_ordered(task, blocks(), self.processes, nice=nice))
            )
            if not cancel:
                log.info("sampling the segmentation of epoch %d", epoch + 1)
                progress = track_progress(parts, "sampled", lambda part: len(part.src))
                parts = stack.enter_context(closing(progress))
            token_store.write(
                to,
                parts,
                Tokenizer(self.vocabulary).vocab_size,
                source_sizes=corpus.source_sizes,
                source_names=corpus.source_names,
                max_length=corpus.max_length,
            )


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
