"""The cleaner, its report, and the registry of filters."""

import json
from dataclasses import fields

import pytest

from transformer_mt.config import CleaningConfig, DataConfig
from transformer_mt.data.cleaning.cleaner import (
    EXAMPLES,
    Cleaner,
    CleaningReport,
    check_lengths,
    report_table,
)
from transformer_mt.data.cleaning.filters import FILTERS, active_filters
from transformer_mt.protocols import Pair

BAD = {
    "empty": ("", "a <b>b</b>\x07"),
    "garbled": ("a\x07 <b>bell</b>", "eine Glocke"),
    "markup": ("a <b>......</b>", "a <b>......</b>"),
    "repetitive": ("a a a a a", "a a a a a"),
    "word_length": ("a b c d", "a b c d"),
    "script": ("это всё", "это всё"),
    "identical": ("the same", "The Same!"),
    "digit_mismatch": ("about 12 men", "etwa 13 Männer"),
}
PAIRS = ("identical", "digit_mismatch")
"""Filters that compare the sides."""


def cleaner_of(config: CleaningConfig, src_lang: str = "en", tgt_lang: str = "de") -> Cleaner:
    return Cleaner(DataConfig(src_lang=src_lang, tgt_lang=tgt_lang, cleaning=config))


def dropped_by(cleaner: Cleaner, src: str, tgt: str) -> str | None:
    return cleaner.clean(Pair(src, tgt)).dropped_by


@pytest.fixture
def strict() -> Cleaner:
    names = ("garbled", "markup", "identical", "repetitive", "odd_words", "digit_mismatch")
    switches = {f"drop_{name}": True for name in names}
    return cleaner_of(CleaningConfig(**switches, min_script_share=0.5))


def test_a_pair_counts_for_the_first_filter_that_drops_it(strict: Cleaner) -> None:
    """Most of these pairs would be dropped by a later filter too."""
    assert {name: dropped_by(strict, *pair) for name, pair in BAD.items()} == {n: n for n in BAD}
    assert dropped_by(strict, "a good sentence", "ein guter Satz") is None


def test_one_bad_side_is_enough(strict: Cleaner) -> None:
    bad_sides = {name: BAD[name][0] for name in BAD if name not in PAIRS}
    for name, bad in (bad_sides | {"repetitive": "so so so so"}).items():
        assert dropped_by(strict, "good", bad) == name  # good in both languages
        assert dropped_by(strict, bad, "good") == name


def test_each_side_is_tested_for_its_own_language() -> None:
    config = CleaningConfig(drop_odd_words=True, min_script_share=0.5)
    chinese = "这是一个没有空格的很长的句子这是一个没有空格的很长的句子"
    assert dropped_by(cleaner_of(config, "en", "zh"), "a good day", chinese) is None
    assert dropped_by(cleaner_of(config, "zh", "en"), chinese, "a good day") is None
    assert dropped_by(cleaner_of(config, "en", "zh"), chinese, "a good day") == "word_length"


def test_default_settings_drop_only_empty_and_long_pairs() -> None:
    config = CleaningConfig(max_tokens=10)
    plain = cleaner_of(config)
    assert [name for name, pair in BAD.items() if dropped_by(plain, *pair)] == ["empty"]
    assert check_lengths(config, 10, 1) is None
    assert [f.name for f in active_filters(CleaningConfig())] == ["empty", "length"]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((1, 1), None),
        ((2, 10), None),
        ((2, 11), "length_ratio"),
        ((40, 105), None),
        ((40, 106), "length"),
    ],
)
def test_lengths(lengths: tuple[int, int], expected: str | None) -> None:
    """longer ≤ 2.5 · shorter + 5, whichever side is the longer; no side has more than 105."""
    config = CleaningConfig(max_tokens=105, max_ratio=2.5)
    assert check_lengths(config, *lengths) == expected
    assert check_lengths(config, *lengths[::-1]) == expected


def test_report_counts_and_shows_the_first_examples() -> None:
    report = CleaningReport(CleaningConfig(deduplicate="pairs"))
    report.total = 10
    for line in range(1, 8):
        report.add("length", f"a.tsv:{line}", "x" * 1000, f"y{line}")
    report.add("empty", "b.tsv:3", "", "tab\t bell\x07 bidi\u202e half\ud800 ü😀")
    content = json.loads(json.dumps(report.to_json()))
    assert (content["total"], content["kept"], report.kept) == (10, 2, 2)
    assert list(content["dropped"].items()) == [("empty", 1), ("length", 7), ("duplicate", 0)]
    shown = {"where": "b.tsv:3", "src": "", "tgt": r"tab\t bell\x07 bidi\u202e half\ud800 ü😀"}
    assert content["examples"]["empty"] == [shown]
    long = content["examples"]["length"]
    assert [pair["where"] for pair in long] == [f"a.tsv:{n + 1}" for n in range(EXAMPLES)]
    assert long[0]["src"].startswith("x" * 100)
    assert len(long[0]["src"]) < 300


def test_the_table_has_shares_of_all_pairs_that_were_read() -> None:
    """Not of those that reached the filter, of those that were dropped, or of one part."""
    config = CleaningConfig(max_tokens=99, deduplicate="pairs")
    whole, parts = CleaningReport(config), ((100, 2, 10), (60, 0, 30), (40, 3, 1))
    for total, empty, length in parts:
        part = CleaningReport(config)
        part.total = total
        for name, count in (("empty", empty), ("length", length)):
            for row in range(count):
                part.add(name, f"a.tsv:{row}", "a", "b")
        whole.merge(part)
    whole.dropped["duplicate"] += 16
    rows = [line.split() for line in report_table(config, whole.to_json()).splitlines()[1:]]
    assert rows == [
        ["empty", "5", "2.50%"],
        ["length", "41", "20.50%", "max_tokens=99"],
        ["duplicate", "16", "8.00%", "deduplicate=pairs"],
        ["kept", "138", "69.00%", "of", "200", "pairs"],
    ]
    assert whole.kept == 138
    empty_table = report_table(config, CleaningReport(config).to_json())
    assert empty_table.splitlines()[-1].split()[:3] == ["kept", "0", "0.00%"]


def test_every_setting_belongs_to_one_filter() -> None:
    settings = [f.setting for f in FILTERS if f.setting]
    assert sorted(settings) == sorted(f.name for f in fields(CleaningConfig))
