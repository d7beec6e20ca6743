"""Export of model folders: the formats, and the output folder."""

import json
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
from support.model_folders import JOB, TEXT, save_step, translate_lines, write_model

from transformer_mt import checkpoint as ckpt
from transformer_mt import export as export_folder
from transformer_mt import run_layout
from transformer_mt.cli import main as commands
from transformer_mt.config import ExportJob
from transformer_mt.errors import InputError
from transformer_mt.model_folder import ModelFolder
from transformer_mt.registries import EXPORT_FORMATS
from transformer_mt.run_layout import TOKENIZER


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "model")
    return tmp_path / "model"


def export(model: Path, output: Path, kind: str = "hub", **more: Any) -> Path:
    return export_folder(ExportJob(model=str(model), format=kind, output=str(output), **more))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_transformers_folder_needs_no_transformers(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # importing it would fail
    output = export(model, tmp_path / "new/folder", "transformers")
    assert names(output) == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("source.spm", "target.spm", "tokenizer_config.json", "vocab.json"),
    }
    settings = json.loads((output / "config.json").read_text(encoding="utf-8"))
    assert (settings["model_type"], settings["vocab_size"]) == ("marian", 290)


def test_differences_of_the_tokenizer_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, output = str(tmp_path / "model"), str(tmp_path / "out")
    data = replace(JOB.data, normalization="standard")
    write_model(Path(model), replace(JOB, data=data))
    commands.export(ExportJob(model=model, format="transformers", output=output))
    out, err = capfd.readouterr()
    assert out == ""
    difference, done = err.splitlines()
    assert "data.normalization=standard" in difference
    assert done == f"mt-export: exported {model} as MarianMTModel: {output}"


@pytest.mark.parametrize("compute_type", [None, "int8"])
def test_ctranslate2_folder(model: Path, tmp_path: Path, compute_type: str | None) -> None:
    output = export(model, tmp_path / "out", "ctranslate2", compute_type=compute_type)
    assert names(output) == {"config.json", "model.bin", "shared_vocabulary.json", TOKENIZER}
    assert (output / TOKENIZER).read_bytes() == (model / TOKENIZER).read_bytes()
    translator = ctranslate2.Translator(str(output))
    assert translator.compute_type == ("int8_float32" if compute_type else "float32")
    assert names(model) == {"config.yaml", "model.safetensors", TOKENIZER}


@pytest.mark.parametrize("kind", EXPORT_FORMATS)
def test_a_checkpoint_is_exported_while_training_runs(
    kind: str, model: Path, tmp_path: Path
) -> None:
    write_model(tmp_path / "other", seed=2)
    other = ModelFolder(tmp_path / "other").load_model()
    save_step(model, 7, other)
    expected = export(tmp_path / "other", tmp_path / "expected", kind)
    (model / run_layout.WEIGHTS).unlink()
    before = {path: path.is_dir() or path.read_bytes() for path in model.rglob("*")}
    found = export(model, tmp_path / "out", kind, step=7)
    assert {path: path.is_dir() or path.read_bytes() for path in model.rglob("*")} == before
    contents = [
        {path.relative_to(folder): load(path) for path in folder.rglob("*") if path.is_file()}
        for folder in (found, expected)
    ]
    assert contents[0] == contents[1]


def load(path: Path) -> object:
    """Content of a file; archives and tensors without times and metadata."""
    if path.suffix == ".argosmodel":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    if path.suffix == ".safetensors":
        return {name: tensor.tolist() for name, tensor in ckpt.read_tensors(path).items()}
    return path.read_bytes()


def test_scores_and_card_are_of_the_final_weights(model: Path, tmp_path: Path) -> None:
    save_step(model, 7, ModelFolder(model).load_model())
    for name in (run_layout.TEST_SCORES, run_layout.MODEL_CARD):
        (model / name).write_text("of the final weights")
    assert run_layout.TEST_SCORES in names(export(model, tmp_path / "final"))
    files = {run_layout.CONFIG, run_layout.WEIGHTS, TOKENIZER}
    assert names(export(model, tmp_path / "step", step=7)) == files


def test_hub_folder_translates(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (model / run_layout.CHECKPOINTS).mkdir()
    (model / run_layout.TEST_SCORES).write_text("[]")
    export(model, tmp_path / "unfinished")
    assert "no model card is exported" in caplog.text
    (model / run_layout.MODEL_CARD).write_text("My model.\n")
    (model / run_layout.CURVES).write_bytes(b"picture")
    (tmp_path / "out").mkdir()  # an empty folder is as good as none
    output = export(model, tmp_path / "out")
    assert (output / run_layout.CURVES).read_bytes() == b"picture"
    assert {"config.yaml", "model.safetensors", "test.json", "tokenizer.model"} <= names(output)
    assert run_layout.CHECKPOINTS not in names(output)
    assert (output / run_layout.MODEL_CARD).read_text() == "My model.\n"
    ModelFolder(output).load_model()  # checksums
    assert translate_lines(output, TEXT[:3]) == translate_lines(model, TEXT[:3])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"output": "model"}, "not an empty folder"),
        ({"output": "."}, "not an empty folder"),
        ({"output": "full"}, "not an empty folder"),
        ({"output": "full/file"}, "not an empty folder"),
        ({"model": "missing"}, "no model folder"),
        ({"model": "damaged"}, "damaged"),
    ],
)
def test_refusals_change_nothing(
    settings: dict[str, Any],
    reason: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree("model", "damaged")
    (tmp_path / "damaged" / run_layout.WEIGHTS).write_bytes(b"\0" * 100)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(InputError, match=reason):
        export_folder(ExportJob(**{"model": "model", "format": "hub", "output": "out", **settings}))
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before


def fail_halfway(_: Any, folder: Path, __: Any) -> str:
    (folder / "half").write_text("x")
    raise OSError(28, "No space left on device")


def test_failure_leaves_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPORT_FORMATS, "hub", f"{__name__}:fail_halfway")
    with pytest.raises(OSError, match="No space left") as caught:
        export(model, tmp_path / "out")
    assert caught.value.filename == str(tmp_path / "out")
    assert names(tmp_path) == {"model"}
