"""Subword regularisation: the same text in other pieces, drawn at random.

SentencePiece can draw too, but 0.2.3 does so anew in each process, whatever its seed: a run could
not be gone on from. So it is done here, on the encoded corpus: a word is the characters of its
pieces, and what they do not spell (special symbols, bytes of rare characters) stays as it is.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, chain, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import Side
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError

_REMEMBERED = 2**14
"""Words whose choices are remembered: text says the same ones again and again."""

_LONG = 32
"""Characters of a word that is not remembered; languages without spaces have many."""

Counts = npt.NDArray[Any]
Segmentations = Iterator[tuple[int, list[str]]]
"""Number of a word, and its pieces; those of other words stay as they are."""


class Sampler:
    """Draws segmentations, by BPE-dropout or from a unigram language model.

    Args:
        tokenizer: Its pieces, and their scores: if those are ranks, whole numbers, it is a BPE.
        strength: Probability to drop a merge of a BPE, or α of a unigram model.

    Raises:
        InputError: A piece reaches beyond a word.
    """

    def __init__(self, tokenizer: Tokenizer, strength: float):
        self._pieces = tokenizer.vocabulary
        scores = {self._pieces[i]: score for i, score in tokenizer.scores().items()}
        for piece in scores:
            if "▁" in piece[1:]:
                raise InputError(
                    f"tokenizer.sampling={strength} draws word by word, but the vocabulary has the "
                    f"piece {piece!r}, which reaches beyond a word: set it to 0"
                )
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if piece in scores}
        self._is_text = np.array([piece in scores for piece in self._pieces])
        self._begins = np.array([piece.startswith("▁") for piece in self._pieces]) | ~self._is_text
        # What is no text counts as one character: there is nothing to choose.
        self._sizes = np.where(self._is_text, [len(piece) for piece in self._pieces], 1)
        is_bpe = all(score.is_integer() for score in scores.values())
        self._draw = (Dropout if is_bpe else Unigram)(scores, strength).draw

    def __call__(self, side: Side, rng: np.random.Generator) -> Side:
        """The same text, drawn anew."""
        tokens, is_text = side.tokens, self._is_text[side.tokens]
        begins = self._begins[tokens]
        begins[1:] |= ~is_text[:-1]  # the end symbol of a sequence is no text
        starts = np.flatnonzero(begins)
        counts = np.diff(starts, append=len(tokens))
        characters = np.add.reduceat(self._sizes[tokens], starts) if len(starts) else counts
        ids, ends, first = tokens.tolist(), (starts + counts).tolist(), starts.tolist()

        def word(i: int) -> str:
            return "".join([self._pieces[token] for token in ids[first[i] : ends[i]]])

        new: list[int] = []
        done, growth = 0, np.zeros(len(starts), np.int64)
        for i, pieces in self._draw(word, characters, counts, rng):
            drawn = [self._ids.get(piece) for piece in pieces]
            if None not in drawn:  # else a character of it is no piece
                new += ids[done : first[i]]
                new += drawn  # type: ignore[arg-type]
                done, growth[i] = ends[i], len(drawn) - counts[i]
        new += ids[done:]
        sequence = np.searchsorted(side.offsets[1:], starts, side="right")
        grown = np.bincount(sequence, growth, len(side)).astype(np.int32)
        return Side.from_lengths(np.array(new, tokens.dtype), side.lengths + grown)


class Dropout:
    """BPE-dropout (Provilkov et al. 2020, Algorithm 1): before each merge, every merge that could
    be made is dropped with probability p; the best of the others is made, until none is left.

    SentencePiece does not consider a merge again that it once dropped.

    Args:
        scores: Of each piece; two neighbours are merged if they make a piece, the highest first.
        p: Probability to drop a merge.
    """

    def __init__(self, scores: Mapping[str, float], p: float):
        self._scores, self._p = scores, p
        self._remembered = lru_cache(4 * _REMEMBERED)(self._merges)

    def draw(
        self,
        word: Callable[[int], str],
        characters: Counts,
        pieces: Counts,
        rng: np.random.Generator,
    ) -> Segmentations:
        """Draws words of which a merge is dropped.

        Args:
            word: The text of a word, by its number.
            characters: [words] characters of each.
            pieces: [words] pieces of each, when no merge is dropped.
            rng: Source of all chance.
        """
        kept = _in_a_row(rng.random(len(pieces)), 1 - self._p)  # merges before the first dropped
        drops = _stream(rng, lambda uniform: _in_a_row(uniform, self._p))
        for i in np.flatnonzero(kept < characters - pieces).tolist():
            yield i, self.sample(word(i), chain(repeat(0, kept[i]), [1 + next(drops)], drops))

    def sample(self, word: str, drops: Iterator[int]) -> list[str]:
        """A segmentation.

        Args:
            word: Some text.
            drops: For each merge to make, how many better ones are dropped.
        """
        merges = self._remembered if len(word) <= _LONG else self._merges
        state = tuple(word)
        for dropped in drops:
            places = merges(state)
            if dropped >= len(places):
                break
            i = places[dropped]
            state = (*state[:i], state[i] + state[i + 1], *state[i + 2 :])
        return list(state)

    def _merges(self, state: tuple[str, ...]) -> tuple[int, ...]:
        """Where two neighbours make a piece, the best first."""
        scores = ((self._scores.get(a + b), i) for i, (a, b) in enumerate(pairwise(state)))
        return tuple(i for _, i in sorted((-s, i) for s, i in scores if s is not None))


class Unigram:
    """Segmentations x of a word, each with a probability ∝ P(x)^α (Kudo 2018, all of them).

    Args:
        scores: log P of each piece.
        alpha: α.
    """

    def __init__(self, scores: Mapping[str, float], alpha: float):
        self._scores = {piece: alpha * score for piece, score in scores.items()}
        self._longest = max(map(len, scores), default=0)
        self._remembered = lru_cache(_REMEMBERED)(self._choices)

    def draw(
        self,
        word: Callable[[int], str],
        characters: Counts,
        _pieces: Counts,
        rng: np.random.Generator,
    ) -> Segmentations:
        """Draws words of more than one character; arguments as for ``Dropout.draw``."""
        uniform = _stream(rng, lambda uniform: uniform)
        for i in np.flatnonzero(characters > 1).tolist():
            yield i, self.sample(word(i), uniform)

    def sample(self, word: str, uniform: Iterator[float]) -> list[str]:
        """A segmentation, from uniform numbers: its last piece, the one before it, and so on."""
        choices = (self._remembered if len(word) <= _LONG else self._choices)(word)
        pieces, end = [], len(word)
        while end:
            starts, sums = choices[end]
            start = starts[bisect_right(sums, next(uniform), hi=len(sums) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _choices(self, word: str) -> list[tuple[list[int], list[float]]]:
        """For each end of a prefix: where its last piece may begin, with what running sum of
        probabilities.
        """
        log_sums, choices = [0.0], [(list[int](), list[float]())]
        for end in range(1, len(word) + 1):
            starts, logs = [], []
            for start in range(max(0, end - self._longest), end):
                score = self._scores.get(word[start:end])
                if score is not None and log_sums[start] > -math.inf:
                    starts.append(start)
                    logs.append(log_sums[start] + score)
            highest = max(logs, default=-math.inf)
            sums = list(accumulate(math.exp(x - highest) for x in logs))
            log_sums.append(highest + math.log(sums[-1]) if sums else -math.inf)
            choices.append((starts, [x / sums[-1] for x in sums]))
        return choices


def _in_a_row(uniform: npt.NDArray[np.float64], p: float) -> npt.NDArray[np.int64]:
    """How often what has probability p happens before it does not, from uniform numbers."""
    if p <= 0 or p >= 1:
        return np.full(len(uniform), 2**62 if p >= 1 else 0)
    return np.floor(np.log1p(-uniform) / math.log(p)).astype(np.int64)


def _stream(
    rng: np.random.Generator, change: Callable[[npt.NDArray[np.float64]], npt.NDArray[Any]]
) -> Iterator[Any]:
    while True:
        yield from change(rng.random(1024)).tolist()
