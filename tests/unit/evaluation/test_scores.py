"""Scores as text and JSON, read back, and checks of the texts that are scored."""

from dataclasses import replace
from pathlib import Path

from support.scoring import perturbed, score

from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.scores import read_scores, to_json, to_text

REFERENCE = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Die E-Mail-Adresse lautet test@example.org, nicht wahr?",
    "Ein Satz\u2028mit\u00a0seltsamen Leerzeichen.",
]


def test_text_has_intervals_and_whole_signatures() -> None:
    settings = ScoreSettings(metrics=["bleu", "paper"], tgt_lang="de", bootstrap=50)
    test = TestSet(references={"r": REFERENCE})
    scores = evaluate_systems({"x": REFERENCE}, test, settings).systems[0].scores
    lines = to_text(scores).splitlines()
    assert lines[0] == "BLEU                   100.00 (μ = 100.00 ± 0.00)  3 segments"
    signatures = [score.signature for score in scores]
    assert [line.strip() for line in lines if "nrefs:" in line] == signatures


def test_scores_are_read_back_from_their_file(tmp_path: Path) -> None:
    names = ["bleu", "chrf", "ter", "paper"]
    scores = score(perturbed(REFERENCE, 1), [REFERENCE], tgt_lang="de", metrics=names)
    (tmp_path / "test.json").write_text(to_json(scores), encoding="utf-8")
    found = read_scores(tmp_path / "test.json")
    assert found == [replace(row, score=round(row.score, 4)) for row in scores]
    assert read_scores(tmp_path / "missing.json") is None
    (tmp_path / "test.json").write_text("[]", encoding="utf-8")
    assert read_scores(tmp_path / "test.json") == []
