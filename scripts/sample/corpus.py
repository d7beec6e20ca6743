"""Seeded grammar that generated the built-in English–German sample corpus.

The package ships the text (``transformer_mt/data/text/sources/sample_corpus``); a test checks that
this grammar still generates it. After a change: write each split of ``sample_pairs`` there, one
English–tab–German line per pair, compress it with ``zstd -19``, and increase ``SAMPLE_VERSION`` in
``transformer_mt/data/text/sources/files.py``.

A sentence starts as a meaning (a ``Clause``, sampled in ``choices.py``) and is realised twice, by
the rules of each language. A meaning has one translation, so that a small model can learn the
mapping: "you" is always "du", the English past is the German perfect (except war, hatte and
modals), and pronouns refer to people or to a noun of the same sentence.

Modules from the bottom up: ``inflection``, ``phrases``, ``clauses``; the tables ``lexicon`` and
``usage``, read by ``words``; ``choices``; and the types of sentences ``one_clause``,
``descriptions`` and ``two_clauses``.
"""

from functools import cache

from sample import descriptions, one_clause, two_clauses
from sample.choices import Dice
from sample.phrases import Bilingual

SIZES = {"train": 40_000, "valid": 500, "test": 1_000}
_HELD_OUT = SIZES["valid"] + SIZES["test"]
_LENGTHS = range(2, 23)  # in English words

__all__ = ["SIZES", "sample_pairs"]


def _tokens(pair: Bilingual) -> set[Bilingual]:
    return {
        (side, word)
        for side, text in zip(("en", "de"), pair, strict=True)
        for word in text[:-1].replace(",", "").split()
    }


def _distinct_pairs(count: int) -> list[Bilingual]:
    """Random pairs without repetitions on either side."""
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
def _corpus() -> dict[str, list[Bilingual]]:
    """Pairs of each split; ``valid`` and ``test`` use only words of ``train``."""
    pairs = _distinct_pairs(SIZES["train"] + 2 * _HELD_OUT)
    train, rest = pairs[: SIZES["train"]], pairs[SIZES["train"] :]
    known = set[Bilingual]().union(*map(_tokens, train))
    held_out = [pair for pair in rest if _tokens(pair) <= known][:_HELD_OUT]
    return {"train": train, "valid": held_out[: SIZES["valid"]], "test": held_out[SIZES["valid"] :]}


def sample_pairs(split: str) -> list[Bilingual]:
    """Pairs (English, German) of a split, the same on every machine.

    Raises:
        ValueError: There is no such split.
    """
    if split not in SIZES:
        raise ValueError(f"the built-in sample has no split {split!r}: use train, valid or test")
    return list(_corpus()[split])
