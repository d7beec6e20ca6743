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


def test_text_has_intervals_and_whole_signatures() -> None:
    settings = ScoreSettings(metrics=["bleu"], protocols=["paper"], tgt_lang="de", bootstrap=50)
    test = TestSet(references={"r": REFERENCE})
    scores = evaluate_systems({"x": REFERENCE}, test, settings).systems[0].scores
    lines = to_text(scores).splitlines()
    assert lines[0] == "BLEU                   100.00 (μ = 100.00 ± 0.00)  3 segments"
    signatures = [score.signature.replace("bs:50|seed:12345|", "") for score in scores]
    assert [line.strip() for line in lines if "nrefs:" in line] == signatures


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
