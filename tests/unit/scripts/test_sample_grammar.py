"""The text of the built-in sample, and the grammar that generates it."""

import re

from sample import corpus
from support.sample import sample_pairs

PAIRS = {split: sample_pairs(split) for split in corpus.SIZES}  # the shipped text


def test_sizes_lengths_and_disjoint_splits() -> None:
    assert {s: len(pairs) for s, pairs in PAIRS.items()} == corpus.SIZES
    for side in (0, 1):
        texts = [pair[side] for pairs in PAIRS.values() for pair in pairs]
        assert len(set(texts)) == len(texts)
        words = {s: set(re.findall(r"[\w'-]+", " ".join(p[side] for p in PAIRS[s]))) for s in PAIRS}
        assert 500 < len(words["train"]) < 1_500
        assert words["valid"] | words["test"] <= words["train"]
    is_text = re.compile(r"[A-ZÄÖÜ][\wé']*([ -]|, |[\w'])*\w[.?]").fullmatch
    assert all(is_text(en) and is_text(de) and en[-1] == de[-1] for en, de in PAIRS["train"])
    assert {4, 8, 12, 16} <= {len(en.split()) for en, _ in PAIRS["train"]} <= {*range(4, 17)}


def test_the_shipped_text_is_what_the_grammar_generates() -> None:
    assert {split: corpus.sample_pairs(split) for split in corpus.SIZES} == PAIRS
