"""What is pointed out, and that nothing is where all is well."""

import pytest

from transformer_mt.evaluate.suspicions import suspicions

GOOD = ["Er kam, sah und siegte.", "Sie ging 3,5 km weit.", "„Gut“, sagte sie.", "Es war's."] * 5


def test_good_output_raises_no_suspicion() -> None:
    assert suspicions(GOOD, [GOOD], ["x"] * len(GOOD)) == []
    assert suspicions(GOOD, [GOOD, GOOD]) == []


def test_copies_and_empty_lines_are_counted() -> None:
    assert suspicions(["Bern", "", "Zug"], [["Bern", "Rom", "Zug"]], [" Bern ", "", "train"]) == [
        "1 of 3 lines are equal to their source",
        "1 of 3 lines are empty",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Er kam , sah und siegte .",
        "Das Rich @-@ Text Format",
        "Er kam mit der Stra@@ ßen@@ bahn",
        "▁Er ▁kam",
        "Er sagte &quot; gut &quot; so",
    ],
)
def test_tokens_are_noticed_on_either_side(line: str) -> None:
    plain = ["Er kam mit der Bahn und ging"] * 10
    tokens = [line] * 2 + plain[2:]
    (of_output,) = suspicions(tokens, [plain])
    assert of_output.startswith("2 of 10 lines of the output look tokenised")
    (of_reference,) = suspicions(plain, [plain, tokens])
    assert of_reference.startswith("2 of 10 lines of a reference look tokenised")
    (of_both,) = suspicions(tokens, [tokens])
    assert of_both.startswith("2 of 10 lines of the output and 2 of 10 lines of a reference look")


def test_french_punctuation_is_not_taken_for_tokens() -> None:
    french = ["Quoi ? Non ! Voici : « oui » ; fin."] * 10
    assert suspicions(french, [french]) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ('"ja"', "„ja“", 'quotes are " in the output but „…“ in the references'),
        ("«ja»", "“ja”", "quotes are «…» in the output but „…“ in the references"),
        ("geht's", "geht’s", "apostrophes are ' in the output but ’ in the references"),
    ],
)
def test_quotes_of_another_style_are_noticed(ours: str, theirs: str, expected: str) -> None:
    (found,) = suspicions([ours] * 6, [[theirs] * 6])
    assert found.startswith(expected)
    assert suspicions([ours] * 2, [[theirs] * 2]) == []  # too few to tell a style
    assert suspicions([ours, theirs] * 6, [[theirs] * 12]) == []  # of both styles


@pytest.mark.parametrize(("output", "noticed"), [(7, True), (9, False), (12, False), (13, True)])
def test_lengths_far_from_the_references_are_noticed(output: int, noticed: bool) -> None:
    found = suspicions(["a" * output] * 10, [["b" * 9] * 10, ["b" * 11] * 10])
    assert len(found) == noticed
    if noticed:
        assert found[0].startswith(f"the output is {output / 10:.2f} times as long")


def test_nothing_at_all_is_only_empty() -> None:
    assert suspicions([""], [[""]]) == ["1 of 1 lines are empty"]
