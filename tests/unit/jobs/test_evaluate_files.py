"""Files that mt-eval reads and writes: paths are resolved, and no input is overwritten."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import short_names
from transformer_mt.jobs.line_processor import check_outputs

LINES = ["Zwei Männer sind im Freien.", "Die E-Mail wurde verschickt."]
OTHER = ["Zwei Männer sind draußen.", "Die E-Mail wurde verschickt."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home and working folder, with the files ref, a, b and src."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, lines in {"ref": LINES, "a": OTHER, "b": OTHER[:1] * 2, "src": ["x", "y"]}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def score(**settings: Any) -> None:
    settings = {"hypotheses": ["a"], "references": ["ref"], "bootstrap": 0, **settings}
    commands.evaluate(EvaluateJob(device="cpu", **settings))


def refusal(**settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        score(**settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tilde_is_expanded_in_every_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score()
    expected = capsys.readouterr().out
    score(hypotheses=["~/a"], references=["~/ref"], source="~/src", report="~/page.html")
    assert capsys.readouterr().out == expected
    assert (folder / "page.html").is_file()
    assert "lists a file twice" in refusal(hypotheses=["~/a", str(folder / "a")])
    assert refusal(source="~/no") == f"cannot read {folder / 'no'}: No such file or directory"


def test_a_closed_output_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert refusal() == "standard output is closed: send the scores to a file, > FILE"


def test_inputs_are_not_overwritten(folder: Path) -> None:
    (folder / "link").symlink_to("b")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    job = {"hypotheses": ["~/a", "b"], "references": ["ref"], "source": "src"}
    keys = {"a": "hypotheses", "./a": "hypotheses", "link": "hypotheses"}
    for report, key in {**keys, "~/ref": "references", "src": "source"}.items():
        message = refusal(report=report, **job)
        assert message.endswith(f" would overwrite the file of {key}: choose another file")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_outputs_must_be_different_files(folder: Path) -> None:
    message = "attention_png=.*/x.html would overwrite the file of report"
    with pytest.raises(InputError, match=message):
        check_outputs({"report": "x.html", "attention_png": f"{folder}/x.html"}, [])
    os.mkfifo(folder / "pipe")  # as /dev/null, it takes both
    check_outputs({"attention_html": "pipe", "attention_png": "pipe"}, [])


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


def test_files_of_the_same_name_can_be_told_apart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name in ("na", "nb"):
        (folder / name).mkdir()
        paths.append(shutil.copy("a", folder / name / "out.de"))
    score(hypotheses=paths, source="src", randomization=20, report="page.html", format="json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in rows] == ["na/out.de", "nb/out.de"]
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "<h1>na/out.de, nb/out.de</h1>" in page
    (folder / "out").write_text("x\n")
    message = refusal(hypotheses=paths, references=["out"])
    assert message.startswith(f"2 lines in {paths[0]} but 1 in out: ")
