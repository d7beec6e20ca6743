"""Parts of the report: groups of sentences by length, and word-by-word differences."""

import random

import pytest

from transformer_mt.contrib.report.charts import GROUPS, by_length
from transformer_mt.contrib.report.pages import changes


def test_length_groups_hold_every_sentence_once_and_in_order() -> None:
    draw = random.Random(1)
    lines = [" ".join(["w"] * draw.randint(1, 40)) for _ in range(203)]
    groups = by_length(lines)
    assert sorted(i for group in groups.values() for i in group) == list(range(203))
    lengths = [[len(lines[i].split()) for i in group] for group in groups.values()]
    assert len(groups) == GROUPS
    for label, of_group, following in zip(groups, lengths, [*lengths[1:], [99]], strict=True):
        assert label.removesuffix(" words") == f"{min(of_group)}–{max(of_group)}"
        assert max(of_group) < min(following)  # sentences of one length are in one group
        assert 203 / GROUPS - 15 < len(of_group) < 203 / GROUPS + 15
    assert [*groups][-1].endswith(" words")


def test_groups_of_few_or_equal_sentences() -> None:
    assert by_length(["a b", "a b"]) == {"2 words": [0, 1]}
    assert by_length(["", "a"]) == {"0": [0], "1 words": [1]}
    assert [*by_length(["a", "a", "b c"]).values()] == [[0, 1], [2]]


def test_text_without_spaces_is_measured_in_characters() -> None:
    groups = by_length(["我喜欢学习中文我喜欢学习中文我喜欢学习中文。", "猫" * 30])
    assert [*groups] == ["22", "30 characters"]


def test_changes_word_by_word() -> None:
    signs = {"same": "=", "only_old": "-", "only_new": "+"}

    def marked(old: str, new: str) -> list[str]:
        return [signs[change.kind] + change.text for change in changes(old, new)]

    sentences = "der rote Hund bellt laut", "der Hund bellt sehr laut"
    assert marked(*sentences) == ["=der", "-rote", "=Hund bellt", "+sehr", "=laut"]
    assert marked("a b", "a c") == ["=a", "-b", "+c"]
    assert marked("", "a") == ["+a"]
    assert marked("", "") == []


@pytest.mark.parametrize("seed", range(20))
def test_changes_keep_both_texts(seed: int) -> None:
    draw = random.Random(seed)
    old, new = (draw.choices("abc", k=draw.randint(0, 300)) for _ in range(2))
    found = changes(" ".join(old), " ".join(new))
    for text, other in ((old, "only_new"), (new, "only_old")):
        assert " ".join(c.text for c in found if c.kind != other).split() == text
