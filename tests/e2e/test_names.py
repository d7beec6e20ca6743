"""Names of files and folders that other programs read as syntax."""

import shutil
from pathlib import Path

from support.training_runs import Running, arguments

from transformer_mt import model_folder
from transformer_mt.cli.overrides import override
from transformer_mt.config import SourceConfig


def test_names_that_look_like_syntax(corpus: Path, tmp_path: Path) -> None:
    name = """w $BUILD it's, [b]={c}: "{d}"\\"""
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(corpus / "train.tsv", folder / f"{name}.tsv")
    source = override("data.train", [SourceConfig(tsv=f"{name}.tsv")])
    argv = [*arguments(corpus, Path("run"), "train.validate_every=4"), source]
    Running("train", [*argv, "train.max_steps=4"], tmp_path / "first", folder).done()
    job = model_folder.read_config(folder / "run")
    assert job.run_dir == str(folder / "run")
    assert [item.tsv for item in job.data.train] == [str(folder / f"{name}.tsv")]
    Running("train", [*argv, "train.max_steps=6"], tmp_path / "more", folder).done()
    out, _ = Running("evaluate", ["model=run", "beam_size=1"], tmp_path / "out", folder).done()
    assert "BLEU" in out


def test_names_that_look_like_numbers(corpus: Path, tmp_path: Path) -> None:
    """``1.10`` is not the run in ``1.1``, and ``1_0`` not the file ``10``."""
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(corpus / "train.tsv", folder / "1e3")
    for kept in ("10", "1.1", "1000.0", "True"):
        (folder / kept).write_text("mine")
    argv = [*arguments(corpus, Path("1.10"), "data.train=[{tsv: 1e3}]"), "train.max_steps=2"]
    Running("train", argv, tmp_path / "first", folder).done()
    (folder / "2.10").write_text("a b\n")
    for output in ("1_0", "true"):
        argv = ["model=1.10", "input=2.10", f"output={output}", "beam_size=1", "engine=torch"]
        Running("translate", argv, tmp_path / f"translate {output}", folder).done()
        assert (folder / output).read_text().count("\n") == 1
    for kept in ("10", "1.1", "1000.0", "True"):
        assert (folder / kept).read_text() == "mine"
