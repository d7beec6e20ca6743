"""Pairs sampled again in each update: noise on the source, and a segmentation of both sides.

What becomes of a pair is a function of seed, update and place in the global batch, so nothing is
stored, any number of ranks sees the same, and a resumed run continues exactly; a pair that occurs
several times in an epoch differs each time. The number of tokens is known only when a pair is
sampled: updates are planned from the stored tokens, by their mean growth.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.plan import GlobalBatch, global_batch
from transformer_mt.data.batching.subword_regularization import SubwordRegularizer
from transformer_mt.data.store.token_store import Indices, Side, TokenStore
from transformer_mt.data.subwords.tokenizer import EOS, UNK, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.protocols import SourceNoise

_SEED = 4
"""Last number of the seeds; those of other generators differ."""

_GROWTH_RUNS, _GROWTH_RUN = 64, 32
"""Runs of neighbouring pairs from which the growth is estimated, and pairs in each."""


class Share(NamedTuple):
    """One rank's share of an update, as it is stored."""

    step: int
    """Number of the update, from 1; 0 for an estimate before training."""
    places: Indices
    """Places of the pairs in the global batch, chunk by chunk. If there are none, one for a
    placeholder."""
    sizes: list[int]
    """Number of pairs of each chunk."""
    store: TokenStore
    """The pairs alone, in memory."""


class Growth(NamedTuple):
    """Number of sampled tokens for each stored token, of source and target."""

    means: npt.NDArray[np.float64]
    """[2] mean."""
    variances: npt.NDArray[np.float64]
    """[2] variance of the number of tokens around their mean, for each stored one."""

    def limits(self, src: int, tgt: int) -> tuple[int, int]:
        """Numbers that stored source and target tokens hardly ever exceed when sampled again."""
        tokens = np.array([src, tgt])
        # One percent for the error of the estimate.
        limits = np.ceil(1.01 * self.means * tokens + 3 * np.sqrt(self.variances * tokens))
        return int(limits[0]), int(limits[1])


@dataclass(frozen=True)
class PairSampler:
    """Worker task: samples the pairs of a share.

    A sequence that would become longer than ``max_length`` stays as it is, so that memory,
    positions and buffers that fit the corpus fit every epoch.

    Args:
        vocabulary: The vocabulary that encoded the corpus, a file or a folder.
        normalizer: Normalisation of the sources, as of all that the model reads.
        noise: Noise on the sources, if any.
        strength: Strength of the ``SubwordRegularizer``; 0: the stored segmentation.
        seed: Seed of all updates.
        max_length: Length of the longest sequence of the corpus.
    """

    vocabulary: Path
    normalizer: Normalizer
    noise: SourceNoise | None
    strength: float
    seed: int
    max_length: int

    def __call__(self, share: Share) -> GlobalBatch:
        """The pairs of the share, sampled, in a store of their own."""
        seeds = ([self.seed, share.step, place, _SEED] for place in share.places.tolist())
        rngs = [np.random.default_rng(seed) for seed in seeds]
        src, tgt = share.store.src, share.store.tgt
        if self.noise is not None:
            src = self._add_noise(self.noise, src, rngs)
        if self.strength:
            sample_src, sample_tgt = self._regularizers
            src = self._segment(sample_src, src, rngs)
            tgt = self._segment(sample_tgt, tgt, rngs)
        chunks = np.split(np.arange(len(rngs)), np.cumsum(share.sizes))[:-1]
        store = TokenStore(src, tgt, max_length_bound=self.max_length)
        return global_batch(store, chunks)

    def growth(self, store: TokenStore) -> Growth:
        """Growth of source and target, from some pairs of a store."""
        pairs = np.arange(len(store))
        if len(store) > _GROWTH_RUNS * _GROWTH_RUN:
            starts = np.linspace(0, len(store) - _GROWTH_RUN, _GROWTH_RUNS).astype(np.int64)
            pairs = (starts[:, None] + np.arange(_GROWTH_RUN)).reshape(-1)
        stored = store.select(pairs)
        sampled = self(Share(0, pairs, [len(pairs)], stored)).store
        every = np.arange(len(pairs))
        before, after = stored.pair_lengths(every), sampled.pair_lengths(every)
        totals = before.sum(axis=1)
        means = after.sum(axis=1) / totals
        return Growth(means, ((after - means[:, None] * before) ** 2).sum(axis=1) / totals)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _add_noise(self, noise: SourceNoise, side: Side, rngs: list[np.random.Generator]) -> Side:
        """The sources, some with noise, unless it makes them too long.

        A source with characters that are lost stays as it is.
        """
        rows = [side[i] for i in range(len(side))]
        for i, add in enumerate(map(noise, rngs)):
            if add is None:
                continue
            ids = rows[i][:-1].tolist()
            if UNK in ids:
                continue
            tags = self._tokenizer.num_tags(ids)
            tag = "".join(self._tokenizer.pieces(ids[:tags]))
            normalizer = self.normalizer.of_tag(tag)
            (text,) = self._tokenizer.decode([ids[tags:]])
            (new,) = self._tokenizer.encode([normalizer.src(add(text))])
            if new and tags + len(new) < self.max_length:
                rows[i] = np.array([*ids[:tags], *new, EOS], side.tokens.dtype)
        lengths = np.array([len(row) for row in rows], np.int32)
        return Side.from_lengths(np.concatenate(rows), lengths)

    def _segment(
        self, regularizer: SubwordRegularizer, side: Side, rngs: list[np.random.Generator]
    ) -> Side:
        sampled = regularizer(side, rngs)
        too_long = sampled.lengths > self.max_length
        both = Side.from_lengths(
            np.concatenate([sampled.tokens, side.tokens]),
            np.concatenate([sampled.lengths, side.lengths]),
        )
        return Side.from_lengths(*both.gather(np.arange(len(sampled)) + too_long * len(sampled)))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.vocabulary)

    @cached_property
    def _regularizers(self) -> tuple[SubwordRegularizer, SubwordRegularizer]:
        """The regularisers of source and target."""
        tokenizer = self._tokenizer
        src = SubwordRegularizer(tokenizer, self.strength)
        joint = tokenizer.tgt is tokenizer
        return src, src if joint else SubwordRegularizer(tokenizer.tgt, self.strength)
