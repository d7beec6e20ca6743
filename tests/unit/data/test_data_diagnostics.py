"""Diagnostics of training and validation data."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support.stores import store_of
from support.tokenizers import WORDS as GERMAN
from support.tokenizers import small_tokenizer

from transformer_mt.data.data_diagnostics import diagnose
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.sources import Pair

EOS = 3
WORDS = "abcdefghijklmnopqrstuvwxyz"


def encoded(pairs: list[Pair]) -> TokenStore:
    return store_of(([*map(ord, src), EOS], [*map(ord, tgt), EOS]) for src, tgt in pairs)


def text(start: int, number: int) -> list[Pair]:
    numbers = range(start, start + number)
    return [Pair(f"s{i}{WORDS[i % 26]}", f"{WORDS[i % 7]}t{i}") for i in numbers]


TRAIN, VALID = text(0, 3000), text(9000, 200)


def warnings_of(
    train: list[Pair], valid: list[Pair], known_tags: tuple[str, ...] = ()
) -> list[str]:
    side = SimpleNamespace(spelling=frozenset())  # of all characters
    tags = {"num_tags": lambda ids: int(ids[0] == ord("<")), "tags": known_tags}
    vocabulary = cast(Tokenizer, SimpleNamespace(is_joint=True, tgt=side, **tags, **vars(side)))
    return list(diagnose(encoded(train), encoded(valid), valid, vocabulary))


def in_two_languages(start: int, number: int) -> list[Pair]:
    return [
        Pair(f"the {WORDS[i % 9]} has {i}", f"DAS {WORDS[i % 9]} ZÄHLT {i}")
        for i in range(start, start + number)
    ]


def test_swapped_sides() -> None:
    train, valid = in_two_languages(0, 500), in_two_languages(1000, 50)
    assert warnings_of(train, valid) == []
    for pairs in (
        (train, [Pair(p.tgt, p.src) for p in valid]),
        ([Pair(p.tgt, p.src) for p in train], valid),
    ):
        (only,) = warnings_of(*pairs)
        assert only.startswith("source and target seem to be swapped in the validation set")


def test_a_tag_that_the_validation_set_lacks() -> None:
    train, valid = ([Pair(f"<2de> {p.src}", p.tgt) for p in pairs] for pairs in (TRAIN, VALID))
    (only,) = warnings_of(train, VALID, ("<2de>",))
    assert only.startswith("200 of 200 validation pairs have no tag")
    assert warnings_of(train, valid, ("<2de>",)) == []
    assert warnings_of([*train, *VALID], VALID[:1] + text(8000, 99), ("<2de>",)) == []


def test_good_data_give_no_warning() -> None:
    a_few = [Pair("Berlin", "Berlin"), *VALID[:9], *TRAIN[5:15]]
    assert warnings_of([*TRAIN, *[Pair("1 + 1", "1 + 1")] * 100], VALID) == []
    assert warnings_of(TRAIN, [*VALID, *a_few]) == []
    assert warnings_of(TRAIN[:1], VALID[:1]) == []


@pytest.mark.parametrize(
    ("train", "valid", "found"),
    [
        ([Pair(p.src, p.src) for p in TRAIN], VALID, "100% of the training pairs have the same"),
        (TRAIN, [Pair(p.tgt, p.tgt) for p in VALID], "200 of 200 validation pairs have the same"),
        (TRAIN, [Pair(" ", "")] * 9, "9 of 9 validation pairs have the same text, or no text"),
        (TRAIN, [*VALID, Pair("a", " ")], "1 of 201 validation pairs have an empty side"),
        (TRAIN, TRAIN, "100% of the validation pairs are training pairs, too"),
        (TRAIN, [*TRAIN[100:150], *VALID[:150]], "25% of the validation pairs are training pairs"),
    ],
)
def test_suspicious_data_give_one_warning(train: list[Pair], valid: list[Pair], found: str) -> None:
    (only,) = warnings_of(train, valid)
    assert only.startswith(found)


@pytest.mark.parametrize("settings", [{}, {"byte_fallback": False, "vocab_size": 34}])
def test_text_in_a_script_that_the_vocabulary_lacks(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    tokenizer = small_tokenizer(tmp_path / "model", **settings)

    def warnings(pairs: list[Pair]) -> list[str]:
        store = store_of(map(tokenizer.encode, pairs))
        return list(diagnose(store, store, [], tokenizer))

    german = [Pair(f"{a} {b}", b) for a in GERMAN for b in GERMAN]
    known = warnings(german)
    russian = [Pair(pair.src, "собака видит кошку") for pair in german]
    (only,) = [message for message in warnings(russian) if message not in known]
    assert "of the target tokens of the training data are bytes or unknown" in only
    a_few = [Pair(src, f"{tgt} ж" if i % 10 == 0 else tgt) for i, (src, tgt) in enumerate(german)]
    assert warnings(a_few) == known
