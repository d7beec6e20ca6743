"""mt-eval of files: sacreBLEU's own numbers, one-line errors, and no input is overwritten."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support import scoring
from support.evaluated_models import (
    REFERENCE,
    SOURCE,
    by_hand,
    error_of,
    scores_and_messages,
    write_lines,
)

from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob
from transformer_mt.errors import InputError
from transformer_mt.evaluation import comparison, metrics
from transformer_mt.evaluation.comparison import Settings, TestSet, short_names
from transformer_mt.evaluation.scores import to_json
from transformer_mt.jobs.line_processor import check_outputs

GOOD = [
    "Zwei Männer sind im Freien, oder?",
    "Die E-Mail wurde gestern verschickt.",
    "Es sind 3,5 km bis nach Hause.",
    "Bern",
]
BAD = ["Two men are outside.", "", "Es ist 3.5 km nach Hause weit.", "Bern"]
OTHER = ["Zwei Herren sind draußen.", "Man hat die E-Mail gesendet.", "Es sind 3,5 km.", "Bern"]
TEXTS = {"good": GOOD, "bad": BAD, "src": SOURCE, "ref": REFERENCE, "other": OTHER}
ONE: dict[str, Any] = {"hypotheses": ["good"], "references": ["ref"]}
TWO: dict[str, Any] = {"hypotheses": ["./bad", "./good"], "references": ["ref"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home and working folder, with the texts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        write_lines(tmp_path / name, lines)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, metrics.DEFAULT),
        ({"tgt_lang": "de"}, [*metrics.DEFAULT, "paper"]),
        ({"tgt_lang": "de", "metrics": ["chrf++"], "protocols": []}, ["chrf++"]),
        (
            {"tgt_lang": "de", "metrics": ["ter"], "protocols": ["lowercase_tokens"]},
            ["ter", "lowercase_tokens"],
        ),
    ],
)
def test_one_system(
    settings: dict[str, Any], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"hypotheses": ["good"], "references": ["ref", "other"], **settings}
    rows, err = scores_and_messages(capsys, **job)
    expected = scoring.score(GOOD, [REFERENCE, OTHER], tgt_lang="de", metrics=names)
    assert rows == json.loads(to_json(expected))
    assert err == ""


def test_several_systems_are_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = scores_and_messages(capsys, **TWO)
    assert [row["system"] for row in rows] == ["bad", "good"]
    baseline, other = (row["scores"] for row in rows)
    test = TestSet(references={"ref": REFERENCE})
    settings = Settings(bootstrap=1000)
    expected = comparison.evaluate_systems({"bad": BAD, "good": GOOD}, test, settings)
    for score, item in zip(other, expected.systems[1].scores, strict=True):
        assert (score["name"], score["baseline"]) == (item.name, "bad")
        assert score["paired_bs_p_value"] == item.p_bootstrap
    assert all("baseline" not in score for score in baseline)
    assert {score["bs"] for score in baseline + other} == {"1000"}
    assert all(score["confidence_var"] > 0 for score in baseline)


def test_rows_are_systems_and_columns_are_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    commands.evaluate(EvaluateJob(**TWO, bootstrap=0))
    text = capsys.readouterr().out
    lines = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    header, *rows = ([cell.strip() for cell in line] for line in lines)
    assert header == ["System", "BLEU", "chrF2", "TER"]
    scores = {"bad (baseline)": by_hand(BAD, REFERENCE), "good": by_hand(GOOD, REFERENCE)}
    assert rows == [[name, *(f"{x:.2f}" for x in values)] for name, values in scores.items()]
    assert not re.search(r"\bp |±|resamples", text)


def test_suspicious_lines_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(folder / "source", [f" {BAD[0]} ", "", "It is 3.5 km.", "Bern"])
    _, err = scores_and_messages(capsys, **TWO, source=source, bootstrap=0)
    assert err.splitlines() == [
        "mt-eval: bad: 2 of 4 lines are identical to their source",
        "mt-eval: bad: 1 of 4 lines are empty",
        "mt-eval: good: 1 of 4 lines are identical to their source",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hypotheses": ["good", "./short"]}, "3 lines in ./short but 4 in ref"),
        ({"references": ["ref", "./short"]}, "4 lines in ref but 3 in ./short"),
        ({"source": "./short"}, "3 lines in ./short but 4 in ref"),
        ({"hypotheses": ["empty"], "references": ["empty"]}, "no lines in empty"),
        ({"references": ["missing"]}, "cannot read missing: No such file or directory"),
        ({"hypotheses": ["latin"]}, "latin, line 1: not valid UTF-8"),
    ],
)
def test_files_that_do_not_fit_are_named(
    settings: dict[str, Any], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(folder / "short", GOOD[:3])
    write_lines(folder / "empty", [])
    (folder / "latin").write_bytes("Männer\n".encode("latin1"))
    assert error_of(capsys, **{**ONE, **settings}).startswith(message)


def test_missing_comet_is_reported_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    job = {"hypotheses": ["not there"], "references": ["nor this"], "source": "src"}
    assert "pipx install unbabel-comet" in error_of(capsys, **job, metrics=["comet"])


def test_tilde_is_expanded_in_every_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands.evaluate(EvaluateJob(**ONE))
    expected = capsys.readouterr().out
    paths = {"hypotheses": ["~/good"], "references": ["~/ref"], "source": "~/src"}
    commands.evaluate(EvaluateJob(**paths, report="~/page.html", bootstrap=0))
    assert capsys.readouterr().out == expected
    assert (folder / "page.html").is_file()
    message = error_of(capsys, **ONE, source="~/no")
    assert message == f"cannot read {folder / 'no'}: No such file or directory"


def test_a_closed_output_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    message = error_of(capsys, **ONE)
    assert message == "standard output is closed: send the scores to a file, > FILE"


def test_inputs_are_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link").symlink_to("bad")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    job = {"hypotheses": ["~/good", "bad"], "references": ["ref"], "source": "src"}
    keys = {"good": "hypotheses", "./good": "hypotheses", "link": "hypotheses"}
    for report, key in {**keys, "~/ref": "references", "src": "source"}.items():
        message = error_of(capsys, **job, report=report)
        assert message.endswith(f" would overwrite the file of {key}: choose another file")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_outputs_must_be_different_files(folder: Path) -> None:
    message = "attention_output=.*/x.html would overwrite the file of report"
    with pytest.raises(InputError, match=message):
        check_outputs({"report": "x.html", "attention_output": f"{folder}/x.html"}, [])
    os.mkfifo(folder / "pipe")  # as /dev/null, it takes both
    check_outputs({"report": "pipe", "attention_output": "pipe"}, [])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["na/out.de", "nb/out.de", "nb/b.de"], ["na/out.de", "nb/out.de", "b.de"]),
        (["out.de", "a/out.de", "/out.de"], ["out.de", "a/out.de", "/out.de"]),
        (["a/out.de", "./a/out.de", "b/a/out.de"], ["a/out.de", "./a/out.de", "b/a/out.de"]),
        (["runs/mine/"], ["mine"]),
        (["."], ["."]),
    ],
)
def test_short_names_are_distinct(paths: list[str], names: list[str]) -> None:
    assert short_names(paths) == names
