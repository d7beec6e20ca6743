"""Signs that training or validation data are not what was meant: a sentence each, none an error."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.text.lines import is_blank
from transformer_mt.data.text.sources import Pair

Lengths = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]

_SHARE = 0.1
"""Of pairs; less is what real text has."""
_SAMPLE = 1000
"""Training pairs looked at."""
_CLEARLY = 0.5
"""Mean log-ratio of a subword's frequencies on the two sides."""
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
    if _is_swapped(train, valid):
        yield (
            "the validation set looks as if its source and target had changed places, or those of "
            "the training data had: look at src and tgt"
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


def _is_swapped(train: TokenStore, valid: TokenStore) -> bool:
    """Whether each side of the validation set has rather the subwords of the other training side.

    By the log-likelihood of each side's subwords under the frequencies of either training side.
    """
    samples = _samples(train, valid)
    size = 1 + max(int(ids.max(initial=0)) for side in samples for ids in side)
    known = [np.bincount(np.concatenate(side), minlength=size) for side in samples]
    frequencies = [(counts + 1) / (counts.sum() + size) for counts in known]  # plus 1: the unseen
    towards_src = np.log(frequencies[0]) - np.log(frequencies[1])
    src, tgt = (float(counts @ towards_src / max(1, counts.sum())) for counts in known[2:])
    return src < -_CLEARLY and tgt > _CLEARLY


def _samples(*stores: TokenStore) -> list[list[npt.NDArray[np.integer]]]:
    """Some sentences of each side of each store."""
    return [
        [side[i] for i in _spread(len(store), _SAMPLE)]
        for store in stores
        for side in (store.src, store.tgt)
    ]


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
