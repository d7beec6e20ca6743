"""Subword regularisation: each epoch trains on a newly sampled segmentation of the pairs.

BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018). SentencePiece 0.2.3 samples,
too, but ignores its seed, so a resumed run would differ. Words are resegmented on the encoded
corpus: a word is the characters of its pieces; special symbols and bytes stay as they are.

The segmentation of a pair is a function of seed, epoch and pair, so nothing is stored. The number
of tokens is known only when a pair is sampled: updates are planned from the stored segmentation, by
its mean growth.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_mt.data.batching.plan import GlobalBatch, global_batch
from transformer_mt.data.store.token_store import Indices, Side, TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer

_SEED = 4
"""Last number of the seeds; those of other generators differ."""

_GROWTH_RUNS, _GROWTH_RUN = 64, 32
"""Runs of neighbouring pairs from which the growth is estimated, and pairs in each."""

_CACHED_WORDS = 2**14
"""Number of words whose choices are cached."""

_MAX_CACHED_LENGTH = 32
"""Longer words, in characters, are not cached; languages without spaces have many."""

Counts = npt.NDArray[Any]
Uniform = npt.NDArray[np.float64]
ResegmentedWords = Iterator[tuple[int, list[str]]]
"""Index and new pieces of each word that is resegmented; other words stay as they are."""


class SubwordRegularizer:
    """Samples segmentations, by BPE-dropout or from a unigram language model.

    Args:
        tokenizer: Tokenizer of the corpus. If the scores of its pieces are ranks (whole numbers) it
            is a BPE model, otherwise a unigram model.
        strength: Probability of dropping a merge (BPE), or α (unigram).
    """

    def __init__(self, tokenizer: Tokenizer, strength: float):
        self._pieces = tokenizer.vocabulary
        scores = {self._pieces[i]: score for i, score in tokenizer.scores().items()}
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if piece in scores}
        self._is_text = np.array([piece in scores for piece in self._pieces])
        self._starts_word = (
            np.array([piece.startswith("▁") for piece in self._pieces]) | ~self._is_text
        )
        # A symbol counts as one character: it has one segmentation.
        self._num_characters = np.where(self._is_text, [len(piece) for piece in self._pieces], 1)
        is_bpe = all(score.is_integer() for score in scores.values())
        self._model = (BPEDropout if is_bpe else UnigramSampling)(scores, strength)

    def __call__(
        self,
        tokens: npt.NDArray[Any],
        lengths: npt.NDArray[np.int32],
        rngs: Sequence[np.random.Generator],
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Resegments encoded sentences, each independently of the others.

        Args:
            tokens: [N] token ids of all sequences, concatenated; each ends with the end symbol.
            lengths: [sequences] number of tokens of each sequence.
            rngs: [sequences] random number generator of each sequence.

        Returns:
            Tokens and lengths of the same text in sampled segmentations.
        """
        is_text = self._is_text[tokens]
        is_start = self._starts_word[tokens]
        is_start[1:] |= ~is_text[:-1]  # the end symbol of a sequence is not text
        starts = np.flatnonzero(is_start)
        if not len(starts):
            return tokens, lengths
        counts = np.diff(starts, append=len(tokens))
        token_characters = self._num_characters[tokens]
        characters = np.add.reduceat(token_characters, starts)
        sequence_characters = np.add.reduceat(token_characters, np.cumsum(lengths) - lengths)
        uniform = np.concatenate(
            [rng.random(n) for rng, n in zip(rngs, sequence_characters.tolist(), strict=True)]
        )
        ids, first, ends = tokens.tolist(), starts.tolist(), (starts + counts).tolist()

        def word(i: int) -> str:
            return "".join([self._pieces[token] for token in ids[first[i] : ends[i]]])

        new: list[int] = []
        done, growth = 0, np.zeros(len(starts), np.int64)
        for i, pieces in self._model.sample_words(word, characters, counts, uniform):
            sampled = [self._ids.get(piece) for piece in pieces]
            if None not in sampled:  # otherwise one of its characters is not a piece
                new += ids[done : first[i]]
                new += sampled  # type: ignore[arg-type]
                done, growth[i] = ends[i], len(sampled) - counts[i]
        new += ids[done:]
        sequence = np.searchsorted(np.cumsum(lengths), starts, side="right")
        grown = np.bincount(sequence, growth, len(lengths)).astype(np.int32)
        return np.array(new, tokens.dtype), lengths + grown


class BPEDropout:
    """BPE-dropout (Provilkov et al. 2020, Algorithm 1).

    Before each merge, every possible merge is dropped with probability p; the best of the others is
    made, until none is left. (SentencePiece never reconsiders a dropped merge.)

    Args:
        scores: Score of each piece. Two neighbours can be merged if they form a piece; the merge
            with the highest score is the best.
        p: Probability of dropping a merge.
    """

    def __init__(self, scores: Mapping[str, float], p: float):
        self._scores, self._p = scores, p
        self._cached_merges = lru_cache(4 * _CACHED_WORDS)(self._merges)

    def sample_words(
        self,
        word: Callable[[int], str],
        characters: Counts,
        pieces: Counts,
        uniform: Uniform,
    ) -> ResegmentedWords:
        """Samples segmentations of the words of which at least one merge is dropped.

        Args:
            word: Text of a word, by its index.
            characters: [words] number of characters of each word.
            pieces: [words] number of pieces of each word when no merge is dropped.
            uniform: [sum of characters] random numbers in [0, 1), one for each character: a word
                has more characters than merges.
        """
        ends = np.cumsum(characters)
        kept = _geometric(uniform[ends - characters], 1 - self._p)  # before the first dropped
        drops = _geometric(uniform, self._p)
        for i in np.flatnonzero(kept < characters - pieces).tolist():
            first, *others = drops[ends[i] - characters[i] + 1 : ends[i]].tolist()
            yield i, self.segment(word(i), chain(repeat(0, kept[i]), [1 + first], others))

    def segment(self, word: str, drops: Iterable[int]) -> list[str]:
        """Pieces of a word.

        Args:
            word: Text of the word.
            drops: For each merge, number of better merges that are dropped.
        """
        merges = self._cached_merges if len(word) <= _MAX_CACHED_LENGTH else self._merges
        state = tuple(word)
        for dropped in drops:
            positions = merges(state)
            if dropped >= len(positions):
                break
            i = positions[dropped]
            state = (*state[:i], state[i] + state[i + 1], *state[i + 2 :])
        return list(state)

    def _merges(self, state: tuple[str, ...]) -> tuple[int, ...]:
        """Positions whose piece can be merged with the next, best merge first."""
        scores = ((self._scores.get(a + b), i) for i, (a, b) in enumerate(pairwise(state)))
        return tuple(i for _, i in sorted((-s, i) for s, i in scores if s is not None))


class UnigramSampling:
    """Samples segmentations x of a word with probability ∝ P(x)^α, from all of them (Kudo 2018).

    Args:
        scores: Log probability of each piece.
        alpha: Exponent α; smaller values vary more.
    """

    def __init__(self, scores: Mapping[str, float], alpha: float):
        self._scores = {piece: alpha * score for piece, score in scores.items()}
        self._max_piece_length = max(map(len, scores), default=0)
        self._cached_choices = lru_cache(_CACHED_WORDS)(self._choices)

    def sample_words(
        self,
        word: Callable[[int], str],
        characters: Counts,
        _pieces: Counts,
        uniform: Uniform,
    ) -> ResegmentedWords:
        """Samples the words of more than one character; arguments as for ``BPEDropout``."""
        ends = np.cumsum(characters)
        for i in np.flatnonzero(characters > 1).tolist():
            own = uniform[ends[i] - characters[i] : ends[i]]
            yield i, self.segment(word(i), iter(own.tolist()))

    def segment(self, word: str, uniform: Iterator[float]) -> list[str]:
        """Pieces of a word, sampled from the last to the first with one uniform number each."""
        cached = len(word) <= _MAX_CACHED_LENGTH
        choices = (self._cached_choices if cached else self._choices)(word)
        pieces, end = [], len(word)
        while end:
            starts, sums = choices[end]
            start = starts[bisect_right(sums, next(uniform), hi=len(sums) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _choices(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Choices of the last piece of each prefix: start positions, cumulative probabilities."""
        log_sums, choices = [0.0], [(list[int](), list[float]())]
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._max_piece_length), end):
                score = self._scores.get(word[start:end])
                if score is not None and log_sums[start] > -math.inf:
                    starts.append(start)
                    logs.append(log_sums[start] + score)
            highest = max(logs, default=-math.inf)
            sums = list(accumulate(math.exp(x - highest) for x in logs))
            log_sums.append(highest + math.log(sums[-1]) if sums else -math.inf)
            choices.append((starts, [x / sums[-1] for x in sums]))
        return choices


def _geometric(uniform: npt.NDArray[np.float64], p: float) -> npt.NDArray[np.int64]:
    """Numbers of successes of probability p before the first failure, from uniform numbers."""
    if p <= 0 or p >= 1:
        return np.full(len(uniform), 2**62 if p >= 1 else 0)
    return np.floor(np.log1p(-uniform) / math.log(p)).astype(np.int64)


class Share(NamedTuple):
    """One rank's share of an update, in the stored segmentation."""

    epoch: int
    pairs: Indices
    """Indices of the pairs, chunk by chunk. If there are none, one for a placeholder."""
    sizes: list[int]
    """Number of pairs of each chunk."""
    store: TokenStore
    """The pairs alone, in memory."""


@dataclass(frozen=True)
class SampledSegmentation:
    """Worker task: samples the segmentation of a share.

    A sequence that would become longer than ``max_length`` keeps its stored segmentation, so that
    memory, positions and buffers that fit the corpus fit every epoch.

    Args:
        vocabulary: The vocabulary that encoded the corpus, a file or a folder.
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
        sample_src, sample_tgt = self._regularizers
        src = self._sample(sample_src, share.store.src, rngs)
        tgt = self._sample(sample_tgt, share.store.tgt, rngs)
        chunks = np.split(np.arange(len(rngs)), np.cumsum(share.sizes))[:-1]
        store = TokenStore(src, tgt, max_length_bound=self.max_length)
        return store, global_batch(chunks, tgt.lengths)

    def growth(self, store: TokenStore) -> tuple[float, float]:
        """Mean growth of source and target: sampled tokens for each stored one, of some pairs."""
        pairs = np.arange(len(store))
        if len(store) > _GROWTH_RUNS * _GROWTH_RUN:
            starts = np.linspace(0, len(store) - _GROWTH_RUN, _GROWTH_RUNS).astype(np.int64)
            pairs = (starts[:, None] + np.arange(_GROWTH_RUN)).reshape(-1)
        stored = store.select(pairs)
        sampled, _ = self(Share(0, pairs, [len(pairs)], stored))
        return (
            len(sampled.src.tokens) / len(stored.src.tokens),
            len(sampled.tgt.tokens) / len(stored.tgt.tokens),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _sample(
        self, regularizer: SubwordRegularizer, side: Side, rngs: list[np.random.Generator]
    ) -> Side:
        sampled = Side.from_lengths(*regularizer(side.tokens, side.lengths, rngs))
        too_long = sampled.lengths > self.max_length
        both = Side.from_lengths(
            np.concatenate([sampled.tokens, side.tokens]),
            np.concatenate([sampled.lengths, side.lengths]),
        )
        return Side.from_lengths(*both.gather(np.arange(len(sampled)) + too_long * len(sampled)))

    @cached_property
    def _regularizers(self) -> tuple[SubwordRegularizer, SubwordRegularizer]:
        """Those of source and target."""
        tokenizer = Tokenizer.load(self.vocabulary)
        src = SubwordRegularizer(tokenizer, self.strength)
        joint = tokenizer.tgt is tokenizer
        return src, src if joint else SubwordRegularizer(tokenizer.tgt, self.strength)
