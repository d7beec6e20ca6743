"""Scores as text and JSON, read back, and checks of the texts that are scored."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.scoring import score

from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import Settings, TestSet, evaluate_systems
from transformer_mt.evaluation.metrics import DEFAULT
from transformer_mt.evaluation.scores import (
    Score,
    check_line_counts,
    read_scores,
    to_json,
    to_text,
)

REFERENCE = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Die E-Mail-Adresse lautet test@example.org, nicht wahr?",
    "Ein Satz\u2028mit\u00a0seltsamen Leerzeichen.",
]
HYPOTHESIS = [
    "Zwei junge Männer sind draußen in der Nähe vieler Büsche.",
    "Die E-Mail-Adresse ist test@example.org, nicht wahr?",
    "Ein Satz mit seltsamen Leerzeichen .",
]


def test_json_needs_no_more_digits_than_the_command_prints() -> None:
    row = Score(name="BLEU", score=12.345678, signature="nrefs:1|a:b:c", segments=7, verbose="")
    assert json.loads(to_json([row])) == [
        {
            "name": "BLEU",
            "score": 12.3457,
            "signature": "nrefs:1|a:b:c",
            "nrefs": "1",
            "a": "b:c",
            "segments": 7,
        }
    ]


@pytest.mark.parametrize("bootstrap", [0, 50])
def test_text_fits_a_terminal_and_keeps_signatures_whole(bootstrap: int) -> None:
    metrics = [*DEFAULT, "chrf++", "paper", "lowercase_tokens"]
    rows = score(REFERENCE, [REFERENCE], tgt_lang="de", metrics=metrics)
    settings = Settings(tgt_lang="de", metrics=metrics, protocols=[], bootstrap=bootstrap)
    evaluation = evaluate_systems({"x": REFERENCE}, TestSet(references={"r": REFERENCE}), settings)
    lines = to_text(evaluation.systems[0].scores).splitlines()
    assert ("μ = 100.00 ± 0.00" in lines[0]) == bool(bootstrap)
    assert max(map(len, lines)) <= 80
    for row in rows:
        first = next(i for i, line in enumerate(lines) if line.startswith(f"{row.name} "))
        assert f"{row.score:.2f}" in lines[first]
        assert "3 segments" in lines[first]
        assert lines[first + 1].strip() == row.signature


def test_invalid_input_is_reported() -> None:
    with pytest.raises(InputError, match=r"^no lines in the hypotheses"):
        check_line_counts({"the hypotheses": [], "ref": []})
    with pytest.raises(InputError, match=r"^2 lines in the hypotheses but 1 in ref2:"):
        check_line_counts({"the hypotheses": ["a", "b"], "ref1": ["a", "b"], "ref2": ["a"]})


def test_line_counts_are_reported_by_file_name() -> None:
    with pytest.raises(InputError, match=r"^999 lines in sysA\.de but 1000 in ref\.de: .*[^\n]$"):
        check_line_counts({"sysA.de": ["x"] * 999, "ref.de": ["x"] * 1000})
    check_line_counts({"sysA.de": ["x"], "ref.de": ["y"]})


def test_scores_are_read_back_from_their_file(tmp_path: Path) -> None:
    scores = score(HYPOTHESIS, [REFERENCE], tgt_lang="de", metrics=[*DEFAULT, "paper"])
    (tmp_path / "test.json").write_text(to_json(scores), encoding="utf-8")
    found = read_scores(tmp_path / "test.json")
    assert found == [replace(row, score=round(row.score, 4)) for row in scores]
    assert read_scores(tmp_path / "missing.json") is None
    (tmp_path / "test.json").write_text("[]", encoding="utf-8")
    assert read_scores(tmp_path / "test.json") == []


@pytest.mark.parametrize(
    "change",
    [
        {"score": "35.2"},
        {"score": None},
        {"name": ["BLEU"]},
        {"segments": 2.5},
        {"signature": "nrefs:1|case:mixed\x1b[31m|eff:no"},
    ],
)
def test_damaged_scores_are_as_good_as_none(
    tmp_path: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    (row,) = json.loads(to_json(score(HYPOTHESIS, [REFERENCE], metrics=["bleu"])))
    (tmp_path / "test.json").write_text(json.dumps([{**row, **change}]), encoding="utf-8")
    assert read_scores(tmp_path / "test.json") is None
    assert caplog.messages == [f"{tmp_path / 'test.json'} is damaged and will not be used"]


@pytest.mark.parametrize(
    "text", ["", '{"name": "BLEU"}', "[3]", "[[]]", "null", "3", '"x"', "[" * 5000]
)
def test_other_json_is_no_list_of_scores(tmp_path: Path, text: str) -> None:
    (tmp_path / "test.json").write_text(text, encoding="utf-8")
    assert read_scores(tmp_path / "test.json") is None
