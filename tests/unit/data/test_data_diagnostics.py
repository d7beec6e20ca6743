"""What looks wrong with data is said; what text has now and then is not."""

import pytest

from transformer_mt.data.data_diagnostics import suspicions
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.text.sources import Pair

EOS = 3
WORDS = "abcdefghijklmnopqrstuvwxyz"


def encoded(pairs: list[Pair]) -> TokenStore:
    def side(lines: list[str]) -> Side:
        return Side.from_lists([[*map(ord, line), EOS] for line in lines])

    return TokenStore(side([pair.src for pair in pairs]), side([pair.tgt for pair in pairs]))


def text(start: int, number: int) -> list[Pair]:
    return [
        Pair(f"s{i}{WORDS[i % 26]}", f"{WORDS[i % 7]}t{i}") for i in range(start, start + number)
    ]


TRAIN, VALID = text(0, 3000), text(9000, 200)


def said(train: list[Pair], valid: list[Pair]) -> list[str]:
    return list(suspicions(encoded(train), encoded(valid), valid))


def in_two_languages(start: int, number: int) -> list[Pair]:
    return [
        Pair(f"the {WORDS[i % 9]} has {i}", f"DAS {WORDS[i % 9]} ZÄHLT {i}")
        for i in range(start, start + number)
    ]


def test_swapped_sides_are_told() -> None:
    train, valid = in_two_languages(0, 500), in_two_languages(1000, 50)
    assert said(train, valid) == []
    for pairs in (
        (train, [Pair(p.tgt, p.src) for p in valid]),
        ([Pair(p.tgt, p.src) for p in train], valid),
    ):
        (only,) = said(*pairs)
        assert only.startswith("the validation set looks as if its source and target had changed")


def test_good_data_are_not_talked_about() -> None:
    a_few = [Pair("Berlin", "Berlin"), *VALID[:9], *TRAIN[5:15]]
    assert said([*TRAIN, *[Pair("1 + 1", "1 + 1")] * 100], VALID) == []
    assert said(TRAIN, [*VALID, *a_few]) == []
    assert said(TRAIN[:1], VALID[:1]) == []


@pytest.mark.parametrize(
    ("train", "valid", "found"),
    [
        ([Pair(p.src, p.src) for p in TRAIN], VALID, "100% of the training pairs have the same"),
        (TRAIN, [Pair(p.tgt, p.tgt) for p in VALID], "200 of 200 validation pairs have the same"),
        (TRAIN, [Pair(" ", "")] * 9, "9 of 9 validation pairs have the same text, or none"),
        (TRAIN, [*VALID, Pair("a", " ")], "1 of 201 validation pairs have an empty side"),
        (TRAIN, TRAIN, "100% of the validation pairs are training pairs, too"),
        (TRAIN, [*TRAIN[100:150], *VALID[:150]], "25% of the validation pairs are training pairs"),
    ],
)
def test_what_looks_wrong_is_said(train: list[Pair], valid: list[Pair], found: str) -> None:
    (only,) = said(train, valid)
    assert only.startswith(found)
