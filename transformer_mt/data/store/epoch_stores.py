"""The encoded corpus drawn anew for each epoch, by many processes: a store for each, on disk."""

import logging
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event

import numpy as np

from transformer_mt.data.store import cache
from transformer_mt.data.store import token_store as store
from transformer_mt.data.store.progress import Progress
from transformer_mt.data.store.token_store import Part, Side, TokenStore
from transformer_mt.data.store.workers import map_ordered
from transformer_mt.data.subwords.subword_regularization import SubwordRegularizer
from transformer_mt.data.subwords.tokenizer import Tokenizer

log = logging.getLogger(__name__)

BLOCK_PAIRS = 10_000
"""Pairs drawn from one source of chance: the same pieces, whoever draws them."""

_BEHIND_TRAINING = 10
"""Niceness of processes that work while training goes on."""


@dataclass(frozen=True)
class Resample:
    """Work: draws the pieces of some pairs.

    A sequence that would become longer than any of the corpus stays as it is, so that memory,
    positions and buffers that fit the corpus fit every epoch.

    Args:
        corpus: Folder of the encoded corpus.
        vocabulary: The SentencePiece model it is encoded by.
        strength: Of the ``SubwordRegularizer``.
        seed: Of all epochs.
        epoch: From 0.
    """

    corpus: Path
    vocabulary: Path
    strength: float
    seed: int
    epoch: int

    def __call__(self, pairs: range) -> Part:
        """Draws consecutive pairs."""
        # With 0 in the last place they were the numbers that shuffle the epoch: [seed, epoch].
        rng = np.random.default_rng([self.seed, self.epoch, 1 + pairs.start])
        corpus = self._store
        stored = (side.part(pairs.start, pairs.stop) for side in (corpus.src, corpus.tgt))
        src, tgt = (
            _unless_longer(
                corpus.longest,
                Side.from_lengths(*self._regularizer(side.tokens, side.lengths, rng)),
                side,
            )
            for side in stored
        )
        return Part(src, tgt)

    @cached_property
    def _store(self) -> TokenStore:
        return TokenStore.load(self.corpus)

    @cached_property
    def _regularizer(self) -> SubwordRegularizer:
        return SubwordRegularizer(Tokenizer(self.vocabulary), self.strength)


@dataclass(frozen=True)
class SampledCorpus:
    """The stores of all epochs, each made when it is asked for.

    Args:
        corpus: Folder of the encoded corpus; the stores lie beside it.
        vocabulary: The SentencePiece model it is encoded by.
        strength: Of the ``SubwordRegularizer``.
        seed: Of all epochs.
        owner: The run that they are for, and that may remove them.
        processes: Most processes to make one; 0 is this one.
    """

    corpus: Path
    vocabulary: Path
    strength: float
    seed: int
    owner: str
    processes: int

    @property
    def folder(self) -> Path:
        """Where the stores are."""
        key = cache.key(self.corpus.name, self.strength, self.seed, self.owner)
        return self.corpus.with_name(f"sampled-{key}")

    def open(self, epoch: int, cancel: Event | None = None) -> TokenStore:
        """The store of an epoch: as many pairs, in the same order, from the same places.

        Args:
            epoch: From 0.
            cancel: Set by another thread to give it up. It is then made in the background: behind
                training, and in silence.

        Raises:
            InputError: It cannot be written.
            CancelledError: ``cancel`` was set.
        """
        entry = self.folder / f"epoch-{epoch:06}"
        corpus = TokenStore.load(self.corpus)
        cache.make(entry, lambda to: self._make(epoch, corpus, to, cancel), cancel)
        return replace(TokenStore.load(entry), lines=corpus.lines)

    def forget(self, before: int) -> None:
        """Removes the stores of epochs before this one, but for the first epoch's."""
        for epoch in sorted(self.folder.glob("epoch-??????")):
            if 0 < int(epoch.name.removeprefix("epoch-")) < before:
                cache.remove(epoch)

    def remove(self) -> None:
        """Removes all stores."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self, epoch: int, corpus: TokenStore, to: Path, cancel: Event | None) -> None:
        if not cancel:
            log.info("drawing the segmentation of epoch %d", epoch + 1)

        def blocks() -> Iterator[range]:
            for first in range(0, len(corpus), BLOCK_PAIRS):
                if cancel and cancel.is_set():
                    raise CancelledError
                yield range(first, min(first + BLOCK_PAIRS, len(corpus)))

        work = Resample(self.corpus, self.vocabulary, self.strength, self.seed, epoch)
        nice = _BEHIND_TRAINING if cancel else 0
        with (
            closing(Progress("drawn", silent=bool(cancel))) as progress,
            closing(map_ordered(work, blocks(), self.processes, nice=nice)) as parts,
        ):
            store.write(
                to,
                _counted(parts, progress),
                Tokenizer(self.vocabulary).vocab_size,
                sources=corpus.sources,
                names=corpus.names,
                longest=corpus.longest,
            )


def _counted(parts: Iterable[Part], progress: Progress) -> Iterator[Part]:
    for part in parts:
        yield part
        progress.add(len(part.src))


def _unless_longer(longest: int, drawn: Side, stored: Side) -> Side:
    """The drawn sequences, or the stored ones where those are longer than ``longest``."""
    too_long = drawn.lengths > longest
    if not too_long.any():
        return drawn
    both = Side.from_lengths(
        np.concatenate([drawn.tokens, stored.tokens]),
        np.concatenate([drawn.lengths, stored.lengths]),
    )
    return Side.from_lengths(*both.gather(np.arange(len(drawn)) + too_long * len(drawn)))
