"""Each suspicious property of translations is reported, and good output is not."""

import pytest

from transformer_mt.evaluation.score_diagnostics import diagnose

GOOD = ["Er kam, sah und siegte.", "Sie ging 3,5 km weit.", "„Gut“, sagte sie.", "Es war's."] * 5


def test_good_output_has_no_diagnostics() -> None:
    reference = [*GOOD[:-1], "Es war so."]
    assert diagnose(GOOD, [reference], ["x"] * len(GOOD)) == []
    assert diagnose(GOOD, [reference, reference]) == []
    french = ["Quoi ? Non ! Voici : « oui » ; fin."] * 10  # not tokenised
    assert diagnose(french, [["Quoi ?", *french[1:]]]) == []


CHINESE = ["今天天气很好，我们去公园散步。", "我喜欢读书。", "她在北京工作，2024年。"]
JAPANESE = ["今日は天気がいいので、公園へ行きます。", "東京都"]
THAI = ["วันนี้อากาศดีมาก เราไปเดินเล่นในสวน", "ฉันชอบอ่านหนังสือ"]


@pytest.mark.parametrize(
    ("lines", "tgt_lang", "advice"),
    [
        (CHINESE, None, "rely on chrF or, if they are Chinese or Japanese, set"),
        (CHINESE, "zho_Hans", None),
        (JAPANESE, None, "rely on chrF"),
        (JAPANESE, "JA", None),
        (THAI, "th", "rely on chrF"),
        (["བོད་སྐད་ནི་བོད་ཀྱི་སྐད་ཡིན།"], "bo", "rely on chrF"),
        (["今天 天气 很 好 ， 我们 去 公园 散步 。"], None, None),  # segmented beforehand
        (["The word 中国 is Chinese"], None, None),
        (["Donaudampfschifffahrtsgesellschaft"], None, None),
    ],
)
def test_text_without_spaces_is_noticed(
    lines: list[str], tgt_lang: str | None, advice: str | None
) -> None:
    output = [*lines[:-1], "x"]
    found = diagnose(output, [lines], tgt_lang=tgt_lang)
    if advice is None:
        assert found == []
    else:
        (text,) = found
        assert text.startswith(f"the references have no spaces between words: {advice}")
    assert diagnose(output, [lines], tgt_lang=tgt_lang, words=False) == []


@pytest.mark.parametrize(
    "line",
    [
        "Er kam , sah und siegte .",
        "Das Rich @-@ Text Format",
        "▁Er ▁kam",
        "Er sagte &quot; gut &quot; so",
    ],
)
def test_tokenised_text_is_noticed_on_either_side(line: str) -> None:
    plain = ["Er kam mit der Bahn und ging"] * 10
    tokens = [line] * 2 + plain[2:]
    last = "Er kam mit der Bahn"
    (of_output,) = diagnose(tokens, [[*plain[1:], last]])
    assert of_output.startswith("2 of 10 lines of the output look tokenised")
    (of_reference,) = diagnose(plain, [[*plain[1:], last], tokens])
    assert of_reference.startswith("2 of 10 lines of a reference look tokenised")
    (of_both,) = diagnose(tokens, [[*tokens[:-1], last]])
    assert of_both.startswith("2 of 10 lines of the output and 2 of 10 lines of a reference look")
