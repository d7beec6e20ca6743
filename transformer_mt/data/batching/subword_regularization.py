"""Subword regularisation: each epoch trains on a newly sampled segmentation of the pairs.

BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018). SentencePiece samples, too,
but differently in each process, whatever the seed (0.2.2, 0.2.3): a resumed run would differ. Words
are resegmented on the encoded corpus: a word is the characters of its pieces; special symbols and
bytes stay as they are.

Who calls this, with which random numbers, is ``pair_sampling.py``.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import Side
from transformer_mt.data.subwords.tokenizer import Tokenizer

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

    def __call__(self, side: Side, rngs: Sequence[np.random.Generator]) -> Side:
        """The same text in sampled segmentations, each independent of the others.

        Args:
            side: Encoded sentences; each ends with the end symbol.
            rngs: Random number generator of each sentence.
        """
        tokens, lengths = side.tokens, side.lengths
        is_text = self._is_text[tokens]
        is_start = self._starts_word[tokens]
        is_start[1:] |= ~is_text[:-1]  # the end symbol of a sequence is not text
        starts = np.flatnonzero(is_start)
        if not len(starts):
            return side
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
        return Side.from_lengths(np.array(new, tokens.dtype), lengths + grown)


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
