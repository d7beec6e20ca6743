"""The built-in English–German sample corpus, so that everything runs offline.

It ships as compressed text. ``scripts/sample`` holds the grammar that generated it.
"""

from pathlib import Path

from transformer_mt.data.text.lines import read_lines

VERSION = 1
"""Part of the fingerprint of the sample: a change of its text raises it."""
SPLITS = ("train", "valid", "test")

_FOLDER = Path(__file__).with_name("sample_corpus")


def sample_pairs(split: str) -> list[tuple[str, str]]:
    """Pairs (English, German) of a split: 40,000, 500 and 1,000 of ``SPLITS``.

    Raises:
        ValueError: There is no such split.
    """
    if split not in SPLITS:
        raise ValueError(f"the built-in sample has no split {split!r}: take train, valid or test")
    pairs = []
    for line in read_lines(_FOLDER / f"{split}.tsv.zst"):
        english, german = line.split("\t")
        pairs.append((english, german))
    return pairs
