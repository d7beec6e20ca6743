"""Packages of Argos Translate."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
from support.errors import input_error
from support.model_folders import JOB, TEXT, VOCAB_SIZE, vocabulary, write_model
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt import export as export_folder
from transformer_mt import run_layout
from transformer_mt.config import ExportJob, TrainJob


def export(model: Path, output: Path, **more: Any) -> Path:
    export_folder(ExportJob(model=str(model), format="argos", output=str(output), **more))
    (archive,) = output.iterdir()
    return archive


def job(**data: Any) -> TrainJob:
    return replace(JOB, data=replace(JOB.data, **data))


@pytest.mark.parametrize(("compute_type", "loaded"), [(None, "int8_float32"), ("float32",) * 2])
def test_content(tmp_path: Path, compute_type: str | None, loaded: str) -> None:
    write_model(tmp_path / "model", job(src_lang="eng_Latn", tgt_lang="nds"))
    archive = export(tmp_path / "model", tmp_path / "out", compute_type=compute_type)
    assert archive.name == "transformer_mt-en_nds.argosmodel"
    with zipfile.ZipFile(archive) as package:
        assert {name for name in package.namelist() if not name.endswith("/")} == {
            f"transformer_mt-en_nds/{name}"
            for name in ("metadata.json", "sentencepiece.model", "model/model.bin",
                         "model/config.json", "model/shared_vocabulary.json")
        }  # fmt: skip
        package.extractall(tmp_path)
    folder = tmp_path / "transformer_mt-en_nds"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "package_version": "1.0",
        "argos_version": "1.10",
        "from_code": "en",
        "from_name": "English",
        "to_code": "nds",
        "to_name": "Low German",
    }
    model = (tmp_path / "model" / run_layout.TOKENIZER).read_bytes()
    assert (folder / "sentencepiece.model").read_bytes() == model
    assert ctranslate2.Translator(str(folder / "model")).compute_type == loaded


def test_what_argos_translate_cannot_do_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path / "moses", job(normalization="moses"))
    with input_error(r"needs data\.normalization=moses, which"):
        export(tmp_path / "moses", tmp_path / "out")
    write_model(tmp_path / "tagged")
    small_tokenizer(tmp_path / "tagged" / run_layout.TOKENIZER, tags=["<2de>"])
    with input_error("needs tags such as <2de>, which"):
        export(tmp_path / "tagged", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not caplog.records
    write_model(tmp_path / "nfc", job(normalization="nfc"))
    export(tmp_path / "nfc", tmp_path / "out")
    assert "does not apply data.normalization=nfc" in caplog.text


def test_of_two_vocabularies_it_has_that_of_the_source(tmp_path: Path) -> None:
    """With which Argos Translate also joins the target's pieces."""
    model = tmp_path / "model"
    write_model(model, replace(JOB, model=replace(JOB.model, tied_embeddings="decoder")))
    (model / run_layout.TOKENIZER).unlink()
    for name, lines in zip(run_layout.SIDE_TOKENIZERS, (random_lines(), TEXT), strict=True):
        (model / name).write_bytes(vocabulary(tuple(lines), VOCAB_SIZE))
    with zipfile.ZipFile(export(model, tmp_path / "out")) as package:
        packed = package.read("transformer_mt-en_de/sentencepiece.model")
    assert packed == (model / run_layout.SIDE_TOKENIZERS[0]).read_bytes()
