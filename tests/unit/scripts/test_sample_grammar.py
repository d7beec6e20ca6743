"""The text of the built-in sample, and the grammar that generates it."""

import re

from sample import corpus
from support.sample import sample_pairs

PAIRS = {split: sample_pairs(split) for split in corpus.SIZES}  # the shipped text


def test_sizes_words_and_disjoint_splits() -> None:
    assert {s: len(pairs) for s, pairs in PAIRS.items()} == corpus.SIZES
    for side in (0, 1):
        texts = [pair[side] for pairs in PAIRS.values() for pair in pairs]
        assert len(set(texts)) == len(texts)
        words = {s: set(re.findall(r"[\w'-]+", " ".join(p[side] for p in PAIRS[s]))) for s in PAIRS}
        assert 500 < len(words["train"]) < 1_500
        assert words["valid"] | words["test"] <= words["train"]


def test_the_shipped_text_is_what_the_grammar_generates() -> None:
    assert {split: corpus.sample_pairs(split) for split in corpus.SIZES} == PAIRS
