"""Pairs of single words from a parallel corpus: words that occur in the same sentence pairs.

Words are associated as in Smadja et al. 1996 (https://aclanthology.org/J96-1001), and each has one
translation, as in Melamed 2000 (https://aclanthology.org/J00-2004).
"""

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from transformer_mt.protocols import Pair

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_MIN_ASSOCIATION = 0.3


def word_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Words that are each other's best translation, as they are and with a capital.

    The association of two words is the Dice coefficient 2 (n_st − 1) / (n_s + n_t) of the numbers
    of pairs in which they occur, where a single pair says nothing. The first words of sentences are
    left out: their capitals may not be their own.
    """
    sides: list[dict[str, int]] = [{}, {}]  # words and their numbers
    rows: list[list[npt.NDArray[np.int64]]] = [[], []]
    for pair in pairs:
        for ids, row, text in zip(sides, rows, pair, strict=True):
            words = set(_WORD.findall(text)[1:])
            row.append(np.array([ids.setdefault(word, len(ids)) for word in words], np.int64))
    src, tgt = map(list, sides)
    links = [(s[:, None] * len(tgt) + t).ravel() for s, t in zip(*rows, strict=True)]
    keys, n_st = np.unique(np.concatenate(links), return_counts=True)
    s, t = np.divmod(keys, len(tgt))
    n_s, n_t = (np.bincount(np.concatenate(row)) for row in rows)
    association = 2 * (n_st - 1) / (n_s[s] + n_t[t])
    order = np.argsort(-association, kind="stable")
    # The first pair of a word in this order has its best translation.
    best_s, best_t = (order[np.unique(ids[order], return_index=True)[1]] for ids in (s, t))
    both = np.intersect1d(best_s, best_t)
    chosen = both[association[both] >= _MIN_ASSOCIATION]
    usual = [Pair(src[s[i]], tgt[t[i]]) for i in chosen]
    capitals = [Pair(*(word[0].upper() + word[1:] for word in pair)) for pair in usual]
    return list(dict.fromkeys(usual + capitals))
