"""Scores as text and JSON, read back, and checks of the texts that are scored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.scoring import perturbed, score

from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.metrics import DEFAULT
from transformer_mt.evaluation.scores import read_scores, to_json, to_text

REFERENCE = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Die E-Mail-Adresse lautet test@example.org, nicht wahr?",
    "Ein Satz\u2028mit\u00a0seltsamen Leerzeichen.",
]


def test_text_fits_a_terminal_and_keeps_signatures_whole() -> None:
    metrics = [*DEFAULT, "chrf++", "paper", "lowercase_tokens"]
    rows = score(REFERENCE, [REFERENCE], tgt_lang="de", metrics=metrics)
    settings = ScoreSettings(tgt_lang="de", metrics=metrics, protocols=[], bootstrap=50)
    evaluation = evaluate_systems({"x": REFERENCE}, TestSet(references={"r": REFERENCE}), settings)
    lines = to_text(evaluation.systems[0].scores).splitlines()
    assert "μ = 100.00 ± 0.00" in lines[0]
    assert max(map(len, lines)) <= 80
    for row in rows:
        first = next(i for i, line in enumerate(lines) if line.startswith(f"{row.name} "))
        assert f"{row.score:.2f}" in lines[first]
        assert "3 segments" in lines[first]
        assert lines[first + 1].strip() == row.signature


def test_scores_are_read_back_from_their_file(tmp_path: Path) -> None:
    scores = score(perturbed(REFERENCE, 1), [REFERENCE], tgt_lang="de", metrics=[*DEFAULT, "paper"])
    (tmp_path / "test.json").write_text(to_json(scores), encoding="utf-8")
    found = read_scores(tmp_path / "test.json")
    assert found == [replace(row, score=round(row.score, 4)) for row in scores]
    assert read_scores(tmp_path / "missing.json") is None
    (tmp_path / "test.json").write_text("[]", encoding="utf-8")
    assert read_scores(tmp_path / "test.json") == []


BLEU = {"name": "BLEU", "score": 35.2, "signature": "nrefs:1|eff:no", "segments": 2}
DAMAGES = [{"score": "35.2"}, {"name": ["BLEU"]}, {"segments": 2.5}, {"signature": "a\x1b[31m|b"}]


@pytest.mark.parametrize(
    "text",
    [*(json.dumps([BLEU | change]) for change in DAMAGES), "", "[3]", "[[]]", "null", "[" * 5000],
)
def test_damaged_scores_are_as_good_as_none(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "test.json"
    path.write_text(json.dumps([BLEU]), encoding="utf-8")
    assert read_scores(path) is not None
    path.write_text(text, encoding="utf-8")
    assert read_scores(path) is None
    assert caplog.messages == [f"{path} is damaged and will not be used"]
