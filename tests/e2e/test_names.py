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
