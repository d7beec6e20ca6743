"""Noisy sources, the scores of a model on them, and their table, tag by tag."""

import json
import sys
from collections.abc import Callable
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
from support.model_folders import load_folder
from support.models import make_translator

from transformer_mt.config import EvaluateJob
from transformer_mt.contrib.robustness.noise import NOISES
from transformer_mt.contrib.robustness.noise_scores import (
    CLEAN,
    evaluate_robustness,
    main,
    noisy_texts,
)
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.evaluation.comparison import TestSet
from transformer_mt.protocols import Pair


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


Run = Callable[..., tuple[str, str]]
"""Runs the command with settings; returns what it prints, and its messages."""


@pytest.fixture
def run(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(**settings: Any) -> tuple[str, str]:
        given = {"model": model, "device": "cpu", **settings}
        arguments = [f"{key}={value}" for key, value in given.items()]
        monkeypatch.setattr(sys, "argv", ["noise_scores", *arguments])
        main()
        return capsys.readouterr()

    return run


def test_tags_and_unknown_tags() -> None:
    source = ["<2de> a man .", "<2de>a man .", "<2fr> a man .", "", "<2de>"]
    references = {"a": source, "b": ["ein Mann.", *source[1:]]}
    test = TestSet(references=references, source=source, tags={"<2de>", ">>fra<<"})
    texts = noisy_texts(test.split_source(), references)
    assert [*texts] == [CLEAN, *NOISES]
    assert texts[CLEAN].references == references
    assert texts["upper_case"].references["b"][:2] == ["EIN MANN.", "<2DE>A MAN ."]
    assert texts["typing_errors"].references == references
    sources = {name: noisy.source for name, noisy in texts.items()}
    assert sources[CLEAN][1] == "<2de> a man ."
    assert sources["upper_case"][:3] == ["<2de> A MAN .", "<2de> A MAN .", "<2FR> A MAN ."]
    for lines in sources.values():
        assert len(lines) == len(source)
        assert all(line.startswith("<2de> ") for line in (lines[0], lines[1], lines[4]))
        assert lines[3] == ""


def test_final_marks_are_removed_from_all_texts_or_from_none() -> None:
    references = {"a": ["Ja.", "Ja.", "Ja"], "b": ["Gut!", "Gut", "Gut."]}
    noisy = noisy_texts([("", "Yes.")] * 3, references)["no_final_punctuation"]
    assert noisy.source == ["Yes", "Yes.", "Yes."]
    assert noisy.references == {"a": ["Ja", "Ja.", "Ja"], "b": ["Gut", "Gut", "Gut."]}


def test_scores_are_those_of_each_noisy_source(model: Path, run: Run) -> None:
    network, tokenizer, job = load_folder(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    out, err = run(engine="torch", format="json")
    found = json.loads(out)
    assert [row["noise"] for row in found] == ["clean", *NOISES]
    clean = by_hand(translator.translate(SOURCE), REFERENCE)
    assert err == ""
    for row in found:
        source, reference = SOURCE, REFERENCE
        if noise := NOISES.get(row["noise"]):
            pairs = map(Pair, SOURCE, REFERENCE)
            noisy = [noise(pair, np.random.default_rng([6, i])) for i, pair in enumerate(pairs)]
            source, reference = ([pair[side] for pair in noisy] for side in (0, 1))
        assert row["changed"] == sum(a != b for a, b in zip(source, SOURCE, strict=True))
        assert [score["name"] for score in row["scores"]] == ["BLEU", "chrF2"]
        expected = by_hand(translator.translate(source), reference)
        for score, own, before in zip(row["scores"], expected, clean, strict=False):
            assert (score["score"], score["segments"]) == (own, len(SOURCE))
            assert score["signature"].startswith("nrefs:1|")
            difference = pytest.approx(own - before, abs=2e-4) if noise else None
            assert score.get("difference") == difference
    assert found[1]["scores"][1]["difference"] != 0  # else this shows nothing
    found = json.loads(run(metrics="[ter]", format="json")[0])
    assert {tuple(score["name"] for score in row["scores"]) for row in found} == {("TER",)}


def test_the_command_prints_one_table(model: Path, run: Run) -> None:
    rows = evaluate_robustness(EvaluateJob(model=str(model)))
    assert run() == (f"{rows.to_text()}\n", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": None, "hypotheses": ["a"], "references": ["b"]}, "set model=FOLDER: noise is"),
        ({"report": "x.html"}, "report is for mt-eval only"),
    ],
)
def test_what_the_table_does_not_show_is_refused(
    model: Path, settings: dict[str, Any], message: str
) -> None:
    with input_error(message):
        evaluate_robustness(EvaluateJob(**{"model": str(model), **settings}))


def test_the_lines_of_each_tag_are_counted(model: Path, tmp_path: Path, run: Run) -> None:
    reserve_tag(model, "<2en>")
    lines = ["<2en> It is 3.5 km.", "Bern", "<2en> Bern", "<2en> BERN"]
    source, reference = write_lines(tmp_path / "tagged", lines), str(tmp_path / "ref")
    found = json.loads(run(source=source, references=f"[{reference}]", format="json")[0])
    assert [row["noise"] for row in found] == ["clean", *NOISES] * 2
    counts = {
        row["scores"][0].get("tag", ""): (row["changed"], row["scores"][0]["segments"])
        for row in found
        if row["noise"] == "upper_case"
    }
    assert counts == {"<2en>": (2, 3), "": (1, 1)}
    assert all(
        "difference" in score for row in found[1 : 1 + len(NOISES)] for score in row["scores"]
    )
