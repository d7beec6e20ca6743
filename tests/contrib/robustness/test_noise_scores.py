"""Noisy sources, the scores of a model on them, and their table, tag by tag."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import input_error
from support.evaluated_models import (
    REFERENCE,
    SOURCE,
    by_hand,
    reserve_tag,
    write_lines,
    write_model,
)
from support.model_folders import open_translator

from transformer_mt.config import EvaluateJob
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.contrib.robustness.noise_scores import (
    CLEAN,
    evaluate_robustness,
    main,
    noisy_text,
    to_text,
)
from transformer_mt.evaluation.comparison import TestSet
from transformer_mt.protocols import Pair


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_tags_and_unknown_tags() -> None:
    source = ["<2de> a man .", "<2de>a man .", "<2fr> a man .", "", "<2de>"]
    references = {"a": source, "b": ["ein Mann.", *source[1:]]}
    test = TestSet(references=references, source=source, tags={"<2de>", ">>fra<<"})
    texts = {name: noisy_text(test.split_source(), references, NOISES[name]) for name in NOISES}
    assert texts["upper_case"][1]["b"][:2] == ["EIN MANN.", "<2DE>A MAN ."]
    assert texts["typing_errors"][1] == references
    assert texts["upper_case"][0][:3] == ["<2de> A MAN .", "<2de> A MAN .", "<2FR> A MAN ."]
    for lines, _ in texts.values():
        assert len(lines) == len(source)
        assert all(line.startswith("<2de> ") for line in (lines[0], lines[1], lines[4]))
        assert lines[3] == ""


def test_final_marks_are_removed_from_all_texts_or_from_none() -> None:
    references = {"a": ["Ja.", "Ja.", "Ja"], "b": ["Gut!", "Gut", "Gut."]}
    noise = NOISES["no_final_punctuation"]
    source, noisy = noisy_text([("", "Yes.")] * 3, references, noise)
    assert source == ["Yes", "Yes.", "Yes."]
    assert noisy == {"a": ["Ja", "Ja.", "Ja"], "b": ["Gut", "Gut", "Gut."]}


def test_scores_are_those_of_each_noisy_source(model: Path) -> None:
    translator = open_translator(model)
    found = evaluate_robustness(EvaluateJob(model=str(model), engine="torch", device="cpu"))
    assert [result.noise for result in found] == ["clean", *NOISES]
    clean = by_hand(translator.translate(SOURCE), REFERENCE)
    for result in found:
        source, reference = SOURCE, REFERENCE
        if noise := NOISES.get(result.noise):
            pairs = map(Pair, SOURCE, REFERENCE)
            noisy = [noise(pair, np.random.default_rng([6, i])) for i, pair in enumerate(pairs)]
            source, reference = ([pair[side] for pair in noisy] for side in (0, 1))
        assert result.changed == sum(a != b for a, b in zip(source, SOURCE, strict=True))
        assert [score.name for score in result.scores] == ["BLEU", "chrF2"]
        expected = by_hand(translator.translate(source), reference)
        for score, own, before in zip(result.scores, expected, clean, strict=False):
            assert (round(score.score, 4), score.segments) == (own, len(SOURCE))
            assert score.signature.startswith("nrefs:1|")
            assert score.difference == (pytest.approx(own - before, abs=2e-4) if noise else None)
    assert found[1].scores[1].difference != 0  # else this shows nothing
    job = EvaluateJob(model=str(model), metrics=["ter"])
    assert {score.name for result in evaluate_robustness(job) for score in result.scores} == {"TER"}


def test_the_command_prints_one_table(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["noise_scores", f"model={model}", "device=cpu"])
    main()
    results = evaluate_robustness(EvaluateJob(model=str(model)))
    assert capsys.readouterr() == (f"{to_text(results)}\n", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": None, "hypotheses": ["a"], "references": ["b"]}, "set model=FOLDER: noise is"),
        ({"report": "x.html"}, "report is for mt-eval only"),
        ({"format": "json"}, "format is for mt-eval only"),
    ],
)
def test_what_the_table_does_not_show_is_refused(
    model: Path, settings: dict[str, Any], message: str
) -> None:
    with input_error(message):
        evaluate_robustness(EvaluateJob(**{"model": str(model), **settings}))


def test_the_lines_of_each_tag_are_scored_apart(model: Path, tmp_path: Path) -> None:
    reserve_tag(model, "<2en>")
    lines = ["<2en> It is 3.5 km.", "Bern", "<2en> Bern", "<2en>BERN"]
    source, reference = write_lines(tmp_path / "tagged", lines), str(tmp_path / "ref")
    job = EvaluateJob(model=str(model), source=source, references=[reference], device="cpu")
    found = evaluate_robustness(job)
    counts = {result.noise: result.changed for result in found}
    assert counts["upper_case"] == 3
    for result in found:
        parts = [(score.label, score.segments) for score in result.scores]
        assert parts == [("BLEU <2en>", 3), ("chrF2 <2en>", 3), ("BLEU", 1), ("chrF2", 1)]
        assert all((score.difference is None) == (result.noise == CLEAN) for score in result.scores)
