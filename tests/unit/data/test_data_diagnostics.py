"""Diagnostics of training and validation data."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support.stores import store_of
from support.tokenizers import WORDS as GERMAN
from support.tokenizers import options_of_others, small_tokenizer

from transformer_mt.data.data_diagnostics import diagnose
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.protocols import Pair

EOS = 3
WORDS = "abcdefghijklmnopqrstuvwxyz"


def encoded(pairs: list[Pair]) -> TokenStore:
    return store_of(([*map(ord, src), EOS], [*map(ord, tgt), EOS]) for src, tgt in pairs)


def text(start: int, number: int) -> list[Pair]:
    numbers = range(start, start + number)
    return [Pair(f"s{i}{WORDS[i % 26]}", f"{WORDS[i % 7]}t{i}") for i in numbers]


TRAIN, VALID = text(0, 3000), text(9000, 200)


def swapped(pairs: list[Pair]) -> list[Pair]:
    return [Pair(tgt, src) for src, tgt in pairs]


ENGLISH_GERMAN = [
    Pair(f"the {WORDS[i % 9]} has {i}", f"DAS {WORDS[i % 9]} ZÄHLT {i}") for i in range(550)
]
IN, OUT = ENGLISH_GERMAN[:500], ENGLISH_GERMAN[500:]
A_FEW = [Pair("Berlin", "Berlin"), *VALID[:9], *TRAIN[5:15]]
SWAPPED = "source and target seem to be swapped in the validation set"


@pytest.mark.parametrize(
    ("train", "valid", "found"),
    [
        (IN, OUT, None),
        (IN, swapped(OUT), SWAPPED),
        (swapped(IN), OUT, SWAPPED),
        (TRAIN, [*VALID, *A_FEW], None),
        (
            TRAIN,
            [Pair("x", tgt) for _, tgt in TRAIN],
            "100% of the validation targets are training targets, too",
        ),
        (TRAIN, [*TRAIN[100:150], *VALID[:150]], "25% of the validation targets are"),
    ],
)
def test_suspicious_data_give_one_warning_and_others_none(
    train: list[Pair], valid: list[Pair], found: str | None
) -> None:
    side = SimpleNamespace(spelling=frozenset())  # of all characters
    vocabulary = cast(Tokenizer, SimpleNamespace(is_joint=True, tgt=side, **vars(side)))
    warnings = list(diagnose(encoded(train), encoded(valid), vocabulary))
    assert len(warnings) == (found is not None)
    assert all(warning.startswith(str(found)) for warning in warnings)


@pytest.mark.parametrize(("byte_fallback", "size"), [(True, 290), (False, 34)])
def test_text_in_a_script_that_the_vocabulary_lacks(
    tmp_path: Path, byte_fallback: bool, size: int
) -> None:
    with options_of_others(byte_fallback=byte_fallback):
        tokenizer = small_tokenizer(tmp_path / "model", vocab_size=size)

    def warnings(pairs: list[Pair]) -> list[str]:
        store = store_of([list(map(tokenizer.encode, pair)) for pair in pairs])
        return list(diagnose(store, store, tokenizer))

    german = [Pair(f"{a} {b}", b) for a in GERMAN for b in GERMAN]
    known = warnings(german)
    russian = [Pair(pair.src, "собака видит кошку") for pair in german]
    (only,) = [message for message in warnings(russian) if message not in known]
    assert "of the target tokens of the training data are bytes or unknown" in only
    a_few = [Pair(src, f"{tgt} ж" if i % 10 == 0 else tgt) for i, (src, tgt) in enumerate(german)]
    assert warnings(a_few) == known
