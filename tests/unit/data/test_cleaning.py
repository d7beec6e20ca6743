"""Each filter on pairs made by hand, and the sums of the report."""

import json

import pytest

from transformer_mt.config import CleaningConfig
from transformer_mt.data.cleaning import Cleaner
from transformer_mt.data.corpus import Pair

PAIRS = [
    Pair("a", "b"),
    Pair("", "b"),
    Pair("a", " \t "),
    Pair("\u3000", ""),
    Pair("a", "c"),
    Pair("a", "b"),
    Pair("a ", "b"),
    Pair("b", "a"),
    Pair("a", "b"),
]


def test_pairs_without_text_are_dropped() -> None:
    cleaner = Cleaner(CleaningConfig())
    kept = list(cleaner.clean_text(PAIRS))
    assert kept == [PAIRS[i] for i in (0, 4, 5, 6, 7, 8)]
    assert cleaner.report.dropped == {"with an empty side": 3}


def test_repetitions_are_dropped_but_the_first() -> None:
    cleaner = Cleaner(CleaningConfig(deduplicate=True))
    # Another target, another space, the sides exchanged: each is a pair of its own.
    assert list(cleaner.clean_text(PAIRS)) == [PAIRS[i] for i in (0, 4, 6, 7)]
    assert cleaner.report.dropped == {"with an empty side": 3, "repeated": 2}


def test_where_the_sides_meet_matters() -> None:
    cleaner = Cleaner(CleaningConfig(deduplicate=True))
    pairs = [Pair("ab", "c"), Pair("a", "bc"), Pair("a b", "c"), Pair("a", "b c")]
    assert list(cleaner.clean_text(pairs)) == pairs


def test_nothing_else_is_changed() -> None:
    pairs = [Pair(" a\u2028b ", "<b>&amp;</b>"), Pair("same", "same"), Pair("x" * 9999, "y")]
    assert list(Cleaner(CleaningConfig(deduplicate=True)).clean_text(pairs)) == pairs


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [((10, 10), True), ((11, 10), False), ((10, 11), False), ((1, 10), True), ((99, 99), False)],
)
def test_the_longest_side_decides(lengths: tuple[int, int], kept: bool) -> None:
    cleaner = Cleaner(CleaningConfig(max_tokens=10))
    cleaner.report.read = 1
    assert cleaner.keep_tokens(*lengths) is kept
    assert cleaner.report.dropped == ({} if kept else {"longer than 10 tokens": 1})
    assert cleaner.report.kept == kept


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [((4, 10), True), ((10, 4), True), ((4, 11), False), ((11, 4), False), ((1, 1), True)],
)
def test_the_ratio_counts_both_ways(lengths: tuple[int, int], kept: bool) -> None:
    cleaner = Cleaner(CleaningConfig(max_tokens=100, max_ratio=2.5))
    assert cleaner.keep_tokens(*lengths) is kept
    reason = "of uneven length (ratio over 2.5)"
    assert cleaner.report.dropped == ({} if kept else {reason: 1})


def test_a_pair_is_counted_once_and_the_sums_agree() -> None:
    cleaner = Cleaner(CleaningConfig(max_tokens=10, max_ratio=2, deduplicate=True))
    kept = list(cleaner.clean_text(PAIRS))
    lengths = [(3, 3), (30, 1), (2, 5), (4, 8)]  # the second is too long and uneven
    kept = [pair for pair, two in zip(kept, lengths, strict=True) if cleaner.keep_tokens(*two)]
    assert kept == [PAIRS[0], PAIRS[7]]
    report = json.loads(json.dumps(cleaner.report.to_dict()))
    assert report["read"] == len(PAIRS)
    assert report["kept"] == len(kept)
    assert report["read"] == report["kept"] + sum(report["dropped"].values())
    assert list(report["dropped"].values()) == [3, 2, 1, 1]
    assert cleaner.report.summary() == (
        "2 of 9 pairs kept; dropped: 3 with an empty side, 2 repeated, "
        "1 longer than 10 tokens, 1 of uneven length (ratio over 2)"
    )


def test_an_empty_corpus_has_a_report_too() -> None:
    assert Cleaner(CleaningConfig()).report.summary() == "0 of 0 pairs kept; dropped: none"
