"""Signs that training or validation data are not what was meant: a sentence each, none an error."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from transformer_mt.data.corpus import Pair
from transformer_mt.data.store import TokenStore
from transformer_mt.data.text import is_blank

Lengths = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]

_SHARE = 0.1
"""Of pairs; less is what real text has."""
_SAMPLE = 1000
"""Training pairs looked at."""
_LOOKED_FOR = 100
"""Validation pairs that are looked for in the training data."""


def suspicions(train: TokenStore, valid: TokenStore, pairs: Sequence[Pair]) -> Iterator[str]:
    """What a person should know before a long run.

    Args:
        train: The training data.
        valid: The validation set, of the same vocabulary.
        pairs: Its text.
    """
    chosen = _spread(len(train), _SAMPLE)
    same = sum(np.array_equal(train.src[i], train.tgt[i]) for i in chosen)
    if same > _SHARE * len(chosen):
        yield (
            f"{same / len(chosen):.0%} of the training pairs have the same text on both sides: is "
            "it the right file? (cleaning=standard drops them)"
        )
    same = sum(pair.src.strip() == pair.tgt.strip() for pair in pairs)
    if same > _SHARE * len(pairs):
        yield (
            f"{same:,} of {len(pairs):,} validation pairs have the same text, or none, on both "
            "sides: is it the right file?"
        )
    blank = sum(is_blank(pair.src) != is_blank(pair.tgt) for pair in pairs)
    if blank:
        yield f"{blank:,} of {len(pairs):,} validation pairs have an empty side"
    chosen = _spread(len(valid), _LOOKED_FOR)
    lengths = train.src.lengths, train.tgt.lengths
    known = sum(_holds(train, lengths, valid, i) for i in chosen)
    if known > _SHARE * len(chosen):
        yield (
            f"{known / len(chosen):.0%} of the validation pairs are training pairs, too: BLEU and "
            "the best checkpoint will say little (cleaning=standard drops such pairs)"
        )


def _spread(pairs: int, number: int) -> list[int]:
    """Some pairs from all over the data."""
    chosen: list[int] = np.unique(np.linspace(0, pairs - 1, number).astype(int)).tolist()
    return chosen


def _holds(train: TokenStore, lengths: Lengths, valid: TokenStore, i: int) -> bool:
    """Whether the training data, whose lengths are given, have this validation pair."""
    src, tgt = valid.src[i], valid.tgt[i]
    alike = (lengths[0] == len(src)) & (lengths[1] == len(tgt))
    return any(
        np.array_equal(train.tgt[j], tgt) and np.array_equal(train.src[j], src)
        for j in np.flatnonzero(alike).tolist()
    )
