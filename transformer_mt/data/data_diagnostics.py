"""Diagnostics for suspicious training and validation data: warnings, not errors."""

from collections.abc import Iterator

import numpy as np

from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer

_MAX_SHARE = 0.1
"""Share of suspicious pairs that real text may have."""
_NUM_TRAIN = 1000
"""Number of training pairs that are examined."""
_NUM_VALID = 100
"""Number of validation pairs that are searched for in the training data."""
_MIN_LOG_RATIO = 0.5
"""Mean log-ratio of a subword's frequencies on the two sides that decides its language."""


def diagnose(train: TokenStore, valid: TokenStore, tokenizer: Tokenizer) -> Iterator[str]:
    """Warnings to read before a long run, one sentence each.

    Args:
        train: Training data, or a random sample.
        valid: Validation set, encoded with the same vocabulary.
        tokenizer: The vocabulary.
    """
    chosen = evenly_spaced(len(train), _NUM_TRAIN)
    sides = ("source", train.src, tokenizer), ("target", train.tgt, tokenizer.tgt)
    for name, side, pieces in sides:
        tokens = np.concatenate([side[i] for i in chosen])
        spelled = np.isin(tokens, list(pieces.spelling)).mean()
        if spelled > _MAX_SHARE:
            yield (
                f"{spelled:.0%} of the {name} tokens of the training data are bytes or unknown, "
                "because the vocabulary lacks their characters: fine-tune another model, or train "
                "a vocabulary of this text"
            )
    if tokenizer.is_joint and _is_swapped(train, valid):
        yield (
            "source and target seem to be swapped in the validation set, or in the training data: "
            "check src and tgt"
        )
    chosen = evenly_spaced(len(valid), _NUM_VALID)
    lengths, known = train.tgt.lengths, 0
    middles = train.tgt.tokens[train.tgt.offsets[:-1] + lengths // 2]
    for tgt in map(valid.tgt.__getitem__, chosen):
        alike = np.flatnonzero((lengths == len(tgt)) & (middles == tgt[len(tgt) // 2]))
        tokens, _ = train.tgt.gather(alike)
        known += bool((tokens.reshape(-1, len(tgt)) == tgt).all(1).any())
    if known > _MAX_SHARE * len(chosen):
        yield (
            f"{known / len(chosen):.0%} of the validation targets are training targets, too: BLEU "
            "and the choice of the best checkpoint will mean little (cleaning=standard drops such "
            "training pairs)"
        )


def _is_swapped(train: TokenStore, valid: TokenStore) -> bool:
    """Whether each side of the validation set resembles the other side of the training data.

    Compares the log-likelihoods of its subwords under the frequencies of the two training sides.
    """
    samples = [
        [side[i] for i in evenly_spaced(len(store), _NUM_TRAIN)]
        for store in (train, valid)
        for side in (store.src, store.tgt)
    ]
    size = 1 + max(int(ids.max(initial=0)) for side in samples for ids in side)
    known = [np.bincount(np.concatenate(side), minlength=size) for side in samples]
    frequencies = [(counts + 1) / (counts.sum() + size) for counts in known]  # add-one smoothing
    log_ratio = np.log(frequencies[0]) - np.log(frequencies[1])
    src, tgt = (float(counts @ log_ratio / max(1, counts.sum())) for counts in known[2:])
    return src < -_MIN_LOG_RATIO and tgt > _MIN_LOG_RATIO


def evenly_spaced(length: int, number: int) -> list[int]:
    """Up to ``number`` evenly spaced indices of a list, from its first to its last."""
    indices: list[int] = np.unique(np.linspace(0, length - 1, number).astype(int)).tolist()
    return indices
