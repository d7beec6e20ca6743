"""Seeded grammar that generated the built-in English–German sample corpus.

``cd scripts && python -m sample.corpus`` writes the text that the package ships, in
``transformer_mt/data/text/sample_corpus``, and a test checks that it is what this grammar
generates. Increase ``SAMPLE_VERSION`` in ``transformer_mt/data/text/sources.py`` with it.

A meaning (``sentences.py``) is put into words by the rules of each language (``grammar.py``) and
has one translation: "you" is "du", the English past is the German perfect (except "war" and modal
verbs), and the progressive has "gerade".
"""

import re
from functools import cache
from pathlib import Path

import pyarrow as pa

from sample.grammar import Bilingual
from sample.sentences import SHAPES, Dice

SIZES = {"train": 40_000, "valid": 500, "test": 1_000}
FOLDER = Path(__file__).parents[2] / "transformer_mt/data/text/sample_corpus"


def _words(pair: Bilingual) -> set[str]:
    return set(re.findall(r"\w+", " ".join(pair)))


@cache
def _corpus() -> dict[str, list[Bilingual]]:
    """Pairs none of whose sides occurs twice; words of held-out pairs occur in ``train``."""
    d = Dice(seed=20170612)
    seen: set[str] = set()
    splits: dict[str, list[Bilingual]] = {split: [] for split in SIZES}
    for split, size in SIZES.items():
        known = set[str]().union(*map(_words, splits["train"]))
        while len(splits[split]) < size:
            pair = d.pick(SHAPES)(d)
            if not pair or not 4 <= len(pair[0].split()) <= 16 or not seen.isdisjoint(pair):
                continue
            seen.update(pair)
            if split == "train" or _words(pair) <= known:
                splits[split].append(pair)
    return splits


def sample_pairs(split: str) -> list[Bilingual]:
    """Pairs (English, German) of a split, the same on every machine."""
    return list(_corpus()[split])


if __name__ == "__main__":
    for name in SIZES:
        text = "".join(f"{en}\t{de}\n" for en, de in sample_pairs(name)).encode()
        zstd = pa.Codec("zstd", compression_level=19)
        (FOLDER / f"{name}.tsv.zst").write_bytes(zstd.compress(text, asbytes=True))
