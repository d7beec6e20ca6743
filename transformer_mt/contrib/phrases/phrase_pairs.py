"""Pairs of phrases from a parallel corpus: words and parts of sentences that translate each other.

Words are aligned by two models of Dyer, Chahuneau and Smith 2013
(https://aclanthology.org/N13-1073), one for each direction, that learn to agree (Liang, Taskar and
Klein 2006, https://aclanthology.org/N06-1014). Phrases are extracted from the alignment as by
Koehn, Och and Marcu 2003 (https://aclanthology.org/N03-1017).

Shapes: C possible links, from each word of a source to each of its target; K different ones.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from transformer_mt.protocols import Pair

_WORD = re.compile(r"\w+|[^\w\s]")
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""A letter of a script without spaces between words: Thai to Burmese, Khmer, kana, Han."""
_MAX_WORDS = 5
"""Maximum number of words of a phrase on each side; a punctuation mark is a word, too."""
_MAX_CHARACTERS = 500
"""Maximum length of a sentence; longer ones are left out."""
_ITERATIONS = 4
_DIAGONAL = 4.0
"""How fast the probability of a link falls with its distance from the diagonal."""
_NO_LINK = 0.01
"""Weight of leaving a word without a link, against the weights of its possible links."""
_MIN_AGREEMENT = 0.04
"""Minimum product of the probabilities that two words are linked, given one and given the other."""
_BATCH = 2_000_000
"""Number of possible links that are computed at a time."""

Array = npt.NDArray[Any]


class _Words:
    """The words of one side of all pairs, end to end."""

    def __init__(self, texts: Sequence[str]):
        words = [list(_WORD.finditer(text)) for text in texts]
        self._words = list(chain.from_iterable(words))
        self.lengths = np.array(list(map(len, words)), np.int64)
        """Number of words of each text."""
        self.starts = np.cumsum(self.lengths) - self.lengths
        """Index of the first word of each text."""
        self.text = np.repeat(np.arange(len(texts)), self.lengths)
        """Index of the text of each word."""
        ids = dict[str, int]()
        numbers = (ids.setdefault(word[0].lower(), len(ids)) for word in self._words)
        self.ids = np.fromiter(numbers, np.int64)
        """A number for each word, the same for equal ones."""
        self.num_ids = len(ids)

    def phrase(self, first: int, last: int) -> str:
        """The text from a word to a later one of the same text."""
        word = self._words[first]
        return word.string[word.start() : self._words[last].end()]


def phrase_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Phrases of up to five words whose words are linked with each other only.

    A phrase begins and ends with a linked word, has a letter or digit, and is no whole sentence.

    Returns:
        Each pair of phrases once, the most frequent first.
    """
    short = [pair for pair in pairs if max(map(len, pair)) <= _MAX_CHARACTERS]
    short = [pair for pair in short if not _UNSPACED.search("".join(pair))]
    src, tgt = _Words([pair.src for pair in short]), _Words([pair.tgt for pair in short])
    links = [np.concatenate(part) for part in zip(*_links(src, tgt), strict=True)]
    spans = _phrases(src, tgt, *links)
    counts = Counter((src.phrase(a, b), tgt.phrase(c, d)) for a, b, c, d in spans)
    has_word = re.compile(r"\w").search
    return [Pair(*pair) for pair, _ in counts.most_common() if all(map(has_word, pair))]


def _links(src: _Words, tgt: _Words) -> Iterator[tuple[Array, Array]]:
    """Indices of linked words of both sides, for a batch of pairs at a time."""
    possible = np.cumsum(src.lengths * tgt.lengths)
    batches = np.split(np.arange(len(possible)), np.flatnonzero(np.diff(possible // _BATCH)) + 1)

    def word_pairs(batch: Array) -> Array:
        s, t, _ = _possible_links(src, tgt, batch)
        return src.ids[s] * tgt.num_ids + tgt.ids[t]

    keys = np.empty(0, np.int64)  # [K]
    for batch in batches:
        keys = np.sort(np.concatenate([keys, word_pairs(batch)]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique takes ten times as long
    places = [np.searchsorted(keys, word_pairs(batch)).astype(np.int32) for batch in batches]
    given_src = given_tgt = np.ones(len(keys))
    for iteration in range(_ITERATIONS + 1):
        counts = np.zeros(len(keys))
        for batch, place in zip(batches, places, strict=True):
            s, t, near = _possible_links(src, tgt, batch)
            # Each target word has a link to one source word or none, and the reverse.
            agreement = _normalized(given_src[place] * near, t)
            agreement *= _normalized(given_tgt[place] * near, s)
            counts += np.bincount(place, agreement, len(keys))
            if iteration == _ITERATIONS:
                linked = agreement >= _MIN_AGREEMENT
                yield s[linked], t[linked]
        given_src, given_tgt = (
            counts / np.maximum(np.bincount(word, counts), np.finfo(np.float64).tiny)[word]
            for word in np.divmod(keys, tgt.num_ids)
        )


def _possible_links(src: _Words, tgt: _Words, batch: Array) -> tuple[Array, Array, Array]:
    """Indices of the words of all possible links of some pairs, and their weights: [C] each."""
    n, m = src.lengths[batch], tgt.lengths[batch]
    pair = np.repeat(np.arange(len(batch)), n * m)
    i, j = np.divmod(np.arange(len(pair)) - (np.cumsum(n * m) - n * m)[pair], m[pair])
    distance = np.abs((i + 0.5) / n[pair] - (j + 0.5) / m[pair])
    return src.starts[batch][pair] + i, tgt.starts[batch][pair] + j, np.exp(-_DIAGONAL * distance)


def _normalized(weights: Array, word: Array) -> Array:
    """Probabilities of the links of each word: their weights, divided by the sum of all choices."""
    word = word - word[:1]  # counted from the first word of the batch
    return weights / (np.bincount(word, weights) + _NO_LINK)[word]


def _phrases(src: _Words, tgt: _Words, s: Array, t: Array) -> Iterator[tuple[int, int, int, int]]:
    """Indices of the first and last words of phrases of both sides, from linked words s and t."""
    n, m = len(src.ids), len(tgt.ids)
    first_t, last_t = np.full(n, m), np.full(n, -1)  # linked with each source word
    first_s, last_s = np.full(m + _MAX_WORDS, n), np.full(m + _MAX_WORDS, -1)
    for first, last, word, linked in ((first_t, last_t, s, t), (first_s, last_s, t, s)):
        np.minimum.at(first, word, linked)
        np.maximum.at(last, word, linked)
    for length in range(1, _MAX_WORDS + 1):
        a = np.arange(n - length + 1)
        b = a + length - 1
        valid = (src.text[a] == src.text[b]) & (src.lengths[src.text[a]] > length)
        valid &= (last_t[a] >= 0) & (last_t[b] >= 0)
        a, b = a[valid], b[valid]
        c = np.min([first_t[a + k] for k in range(length)], axis=0)
        d = np.max([last_t[a + k] for k in range(length)], axis=0)
        valid = d - c < _MAX_WORDS
        for k in range(_MAX_WORDS):  # words from c to d are linked with words from a to b only
            valid &= (c + k > d) | ((first_s[c + k] >= a) & (last_s[c + k] <= b))
        yield from zip(*(index[valid].tolist() for index in (a, b, c, d)), strict=True)
