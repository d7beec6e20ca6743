"""Names of files and folders that other programs read as syntax, or cannot read."""

import shutil
from pathlib import Path

import pytest
from support.training_runs import Running, arguments, one_line_error

from transformer_mt import model_folder
from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig

NOT_UTF8 = "caf\udce9"
"""A name in Latin-1, as Python has it."""


def start(corpus: Path, cwd: Path, out: Path, *more: str) -> Running:
    given = arguments(corpus, Path("run"), "train.max_steps=4", "train.validate_every=4")
    return Running("train", [*given, *more], out, cwd)


def test_names_that_look_like_syntax(corpus: Path, tmp_path: Path) -> None:
    name = """w $BUILD it's, [b]={c}: "{d}"\\"""
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(corpus / "train.tsv", folder / f"{name}.tsv")
    source = override("data.train", [SourceConfig(tsv=f"{name}.tsv")])
    start(corpus, folder, tmp_path / "first", source).done()
    job = model_folder.read_config(folder / "run")
    assert job.run_dir == str(folder / "run")
    assert [item.tsv for item in job.data.train] == [str(folder / f"{name}.tsv")]
    start(corpus, folder, tmp_path / "more", source, "train.max_steps=6").done()
    argv = ["model=run", "beam_size=1"]
    out, _ = Running("evaluate", argv, tmp_path / "scores", folder).done()
    assert "BLEU" in out


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("run_dir", None),  # the working folder
        ("data.train", [SourceConfig(tsv=f"{NOT_UTF8}.tsv")]),
    ],
)
def test_names_that_are_not_utf8_are_refused_first(
    corpus: Path, tmp_path: Path, setting: str, value: object
) -> None:
    folder = tmp_path / (NOT_UTF8 if value is None else "cwd")
    folder.mkdir()
    (folder / f"{NOT_UTF8}.tsv").write_bytes((corpus / "train.tsv").read_bytes())
    argv = [override("cache_dir", tmp_path / "cache")]
    if value is not None:
        argv += ["run_dir=/tmp/r", override(setting, value)]
    error = one_line_error(start(corpus, folder, tmp_path / "out", *argv).wait())
    assert error.startswith(f"{setting}: not valid UTF-8: ")
    assert not (tmp_path / "cache").exists()  # nothing was encoded
    assert not (folder / "run").exists()
