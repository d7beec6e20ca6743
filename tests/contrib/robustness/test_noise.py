"""Each kind of noise does what its name says, and none loses a line."""

import math
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transformer_mt.contrib.robustness.noise import (
    NOISES,
    RATES,
    less_punctuation,
    no_final_punctuation,
    some_noise,
    title_case,
    typing_errors,
    typographic_quotes,
    upper_case,
)
from transformer_mt.protocols import Pair, PairNoise

WORDS = ["a", "Männer", '"no."', "don't", "...", "3.5", "I", "猫が好き。", "ß", "(so)", "\xa0"]
TEXTS = st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join)


BOTH_SIDES = ["upper_case", "no_final_punctuation", "emoji", "list_item"]


def add(noise: PairNoise, src: str, tgt: str = "", seed: int = 0) -> Pair:
    return noise(Pair(src, tgt), np.random.default_rng(seed))


def test_the_mix_has_a_rate_of_every_kind() -> None:
    assert list(RATES) == list(NOISES)[: len(RATES)]
    stay = math.prod(1 - rate for rate in RATES.values())
    given = Pair('it is a "very" long way .', "es ist weit .")
    drawn = [add(some_noise, *given, seed=seed) for seed in range(2000)]
    assert drawn.count(given) / len(drawn) == pytest.approx(stay, abs=0.03)
    assert 1 - stay == pytest.approx(0.36, abs=0.01)
    drawn = [add(less_punctuation, "So?", "So!", seed=seed) for seed in range(2000)]
    assert set(drawn) == {("So?", "So!"), ("So", "So")}
    assert drawn.count(Pair("So", "So")) / 2000 == pytest.approx(0.1, abs=0.03)


@given(TEXTS, TEXTS, st.sampled_from(list(NOISES)), st.integers(0, 2**32))
def test_noise_keeps_lines_and_is_deterministic(src: str, tgt: str, name: str, seed: int) -> None:
    pair = add(NOISES[name], src, tgt, seed)
    assert pair == add(NOISES[name], src, tgt, seed)
    for noisy, text in zip(pair, (src, tgt), strict=True):
        assert bool(noisy.strip()) == bool(text.strip())
        assert len(noisy.splitlines()) <= len(text.splitlines())
        assert noisy.count("\n") <= text.count("\n")
    if name not in BOTH_SIDES or pair.src == src:
        assert pair.tgt == tgt


@pytest.mark.parametrize(
    ("text", "upper", "title"),
    [
        ("a man isn't here.", "A MAN ISN'T HERE.", "A Man Isn't Here."),
        ('the "best" McDo (so far)', 'THE "BEST" MCDO (SO FAR)', 'The "Best" McDo (So Far)'),
        ("über ǆ straße 3rd -x", "ÜBER Ǆ STRASSE 3RD -X", "Über ǅ Straße 3rd -X"),
    ],
)  # fmt: skip
def test_case(text: str, upper: str, title: str) -> None:
    assert add(upper_case, text, text) == (upper, upper)
    assert add(title_case, text, text) == (title, text)


def test_capitals_of_the_target_are_those_of_the_source() -> None:
    assert add(upper_case, "猫 like。", "a cat.") == ("猫 like。", "a cat.")
    assert add(upper_case, "a cat.", "猫が好き。") == ("A CAT.", "猫が好き。")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3.5 km.", "It is 3.5 km"),
        ("Is it so?!  ", "Is it so"),
        ("猫が好きです。", "猫が好きです"),
        ("यह ठीक है।", "यह ठीक है"),
        ("e.g. this", "e.g. this"),
        ('He said "no."', 'He said "no."'),
    ],
)
def test_final_punctuation(text: str, expected: str) -> None:
    assert add(no_final_punctuation, text, "Ja.") == (expected, "Ja." if expected == text else "Ja")
    for without in ("Ja", "..."):
        assert add(no_final_punctuation, text, without) == (text, without)


def test_noise_of_test_sets_only() -> None:
    pair = Pair("Ann met 3men, her über-old man.", "Sie.")
    found = {add(NOISES["emphasis"], *pair, seed=seed) for seed in range(50)}
    assert found == {(pair.src.replace("über", "ÜBER"), "Sie.")}
    assert add(NOISES["lower_case"], *pair) == (pair.src.lower(), "Sie.")
    assert add(NOISES["emoji"], *pair) == (f"{pair.src} 😀", "Sie. 😀")
    assert add(NOISES["list_item"], *pair) == (f"- {pair.src}", "- Sie.")


def test_typographic_quotes() -> None:
    text = '"Don\'t", he said ("I won\'t") to "her".'
    found = {add(typographic_quotes, text, seed=seed).src for seed in range(50)}
    assert found == {
        f"{a}Don’t{b}, he said ({a}I won’t{b}) to {a}her{b}."
        for a, b in ("“”", "„“", "«»", "””")
    }  # fmt: skip
    assert add(typographic_quotes, "no quotes").src == "no quotes"


@pytest.mark.parametrize("count", [1, 10, 11])
def test_one_word_in_ten_has_a_typing_error(count: int) -> None:
    words = ["abcdef", "ghijkl", "mnopqr", "stuvwx"]
    text = " ".join(words[i % 4] for i in range(count))
    lengths = Counter[int]()
    for seed in range(300):
        before, after = text.split(" "), add(typing_errors, text, seed=seed).src.split(" ")
        wrong = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(wrong) == math.ceil(count / 10)
        lengths.update(len(b) - len(a) for a, b in wrong)
    # A letter is left out, swapped, replaced or doubled, equally often.
    shares = [lengths[change] / lengths.total() for change in (-1, 0, 1)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.08)


@given(TEXTS, st.integers(0, 2**32))
@example("²A", 0)
def test_typing_errors_touch_only_words(text: str, seed: int) -> None:
    noisy = add(typing_errors, text, seed=seed).src
    others = ["".join(c for c in t if unicodedata.category(c)[0] != "L") for t in (text, noisy)]
    assert others[0] == others[1]
    single = [word for word in re.findall(r"[^\W\d_]+", text) if len(word) == 1]
    kept = Counter(re.findall(r"[^\W\d_]+", noisy))
    assert Counter(single) <= kept
    if not re.search(r"[^\W\d_]{2}", text):
        assert noisy == text
