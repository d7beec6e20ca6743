"""The built-in English–German sample corpus: a seeded grammar, so that everything runs offline.

A sentence starts as one meaning (a ``Clause`` drawn by ``choices.py``) and is realised twice, once
by the rules of each language. One meaning has one rendering, so that a small model can learn the
mapping: "you" is always "du", the English past is the German perfect (war, hatte and modals apart),
and pronouns stand for people or for a noun in the same sentence.

From the bottom up: ``inflection``, ``phrases``, ``clauses``; ``lexicon`` and ``usage``, ``words``,
``choices``; and the shapes of sentences, ``one_clause``, ``descriptions`` and ``two_clauses``.
"""

from functools import cache

from sample import descriptions, one_clause, two_clauses
from sample.choices import Dice
from sample.phrases import Pair

VERSION = 1
SIZES = {"train": 40_000, "valid": 500, "test": 1_000}
_HELD_OUT = SIZES["valid"] + SIZES["test"]
_LENGTHS = range(2, 23)  # in English words

__all__ = ["SIZES", "VERSION", "sample_pairs"]


def _tokens(pair: Pair) -> set[Pair]:
    return {
        (side, word)
        for side, text in zip(("en", "de"), pair, strict=True)
        for word in text[:-1].replace(",", "").split()
    }


def _distinct_pairs(count: int) -> list[Pair]:
    """Random pairs that share no sentence of either language."""
    weights = one_clause.SHAPES | descriptions.SHAPES | two_clauses.SHAPES
    shapes = [shape for shape, weight in weights.items() for _ in range(weight)]
    d = Dice(seed=20170612)
    pairs: dict[str, str] = {}
    targets: set[str] = set()
    while len(pairs) < count:
        pair = d.pick(shapes)(d)
        if not pair or pair[0] in pairs or pair[1] in targets:
            continue
        if len(pair[0].split()) in _LENGTHS:
            pairs[pair[0]] = pair[1]
            targets.add(pair[1])
    return list(pairs.items())


@cache
def _corpus() -> dict[str, list[Pair]]:
    """The splits; what is held out has only words of the training split."""
    pairs = _distinct_pairs(SIZES["train"] + 2 * _HELD_OUT)
    train, rest = pairs[: SIZES["train"]], pairs[SIZES["train"] :]
    known = set[Pair]().union(*map(_tokens, train))
    held_out = [pair for pair in rest if _tokens(pair) <= known][:_HELD_OUT]
    return {"train": train, "valid": held_out[: SIZES["valid"]], "test": held_out[SIZES["valid"] :]}


def sample_pairs(split: str) -> list[Pair]:
    """The ``train``, ``valid`` or ``test`` pairs, (English, German), the same on every machine."""
    if split not in SIZES:
        raise ValueError(f"the built-in sample has no split {split!r}: take train, valid or test")
    return list(_corpus()[split])
