"""Folders for transformers.js: the vocabulary as ``tokenizer.json``, and translations in Node."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.errors import input_error
from support.model_folders import (
    JOB,
    TEXT,
    VOCAB_SIZE,
    translate_lines,
    vocabulary,
    write_model,
)
from support.models import model_that_ends, random_lines
from support.tokenizers import options_of_others, small_tokenizer

from transformer_mt import checkpoint as ckpt
from transformer_mt import export as export_folder
from transformer_mt import run_layout
from transformer_mt.config import ExportJob, TrainJob
from transformer_mt.data.subwords.tokenizer import EOS, Tokenizer
from transformer_mt.decode.engines import torch_engine

ODD = ["", "  a  fox ", "a\tfox", "▁a ▁ fox▁ ", "\xa0a\xa0fox \xa0", "Füchse 漢字 🙂 x²", "a‐b … c"]
TO_NODE = """
const { env, pipeline } = require("@huggingface/transformers");
const lines = JSON.parse(process.argv[2]);
env.allowRemoteModels = false;
env.localModelPath = process.argv[1];
pipeline("translation", "web", { dtype: "fp32", subfolder: "" }).then(async (translate) => {
  for (const line of lines) {
    const [translation] = await translate(line, { max_new_tokens: 12 });
    console.log(translation.translation_text);
  }
});
"""


def export(model: Path, output: Path) -> Path:
    return export_folder(ExportJob(model=str(model), format="browser", output=str(output)))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_tokenizer_has_the_same_ids(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import transformers

    write_model(tmp_path / "model", job(tokenizer={"type": kind}))
    if kind == "unigram":
        small_tokenizer(tmp_path / "model" / run_layout.TOKENIZER, TEXT, type=kind)
    output = export(tmp_path / "model", tmp_path / "out")
    assert {path.name for path in output.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    ours, theirs = (
        Tokenizer(tmp_path / "model"),
        transformers.AutoTokenizer.from_pretrained(output),
    )
    for line in (*TEXT, *ODD, *random_lines(100, 9)):
        ids = ours.encode(line)
        assert theirs(line).input_ids == [*ids, EOS], line
        assert theirs.decode(ids).strip(" ") == ours.decode(ids)


def job(**changes: Any) -> TrainJob:
    return replace(JOB, **{k: replace(getattr(JOB, k), **v) for k, v in changes.items()})


def test_normalisation_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", job(data={"normalization": "nfc"}))
    with input_error(r"needs data\.normalization=nfc, which tokenizer.json does not"):
        export(tmp_path / "model", tmp_path / "out")


def test_two_vocabularies_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_model(folder, job(model={"tied_embeddings": "none"}))
    (folder / run_layout.TOKENIZER).unlink()
    for name, text in zip(run_layout.SIDE_TOKENIZERS, (TEXT, [x[::-1] for x in TEXT]), strict=True):
        (folder / name).write_bytes(vocabulary(tuple(text), VOCAB_SIZE))
    with input_error(r"needs tokenizer\.joint=false"):
        export(folder, tmp_path / "out")


def test_the_normalisation_of_another_program_s_vocabulary_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", job())
    with options_of_others(normalization_rule_name="nfkc"):
        small_tokenizer(tmp_path / "model" / run_layout.TOKENIZER, TEXT)
    with input_error("needs the normalisation of its vocabulary, which tokenizer.json does not"):
        export(tmp_path / "model", tmp_path / "out")


def has_programs() -> bool:
    if not (shutil.which("node") and shutil.which("optimum-cli")):
        return False
    command = ["node", "-e", "require.resolve('@huggingface/transformers')"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not has_programs(), reason="needs node, its package (NODE_PATH), optimum-cli")
@pytest.mark.parametrize("norm", ["pre", "post"])  # Blenderbot and MarianMT
def test_translations_in_node(norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaked = model_that_ends(0.6, norm=norm)
    lines = random_lines(40, 9)
    trained = replace(JOB, model=peaked.config)
    write_model(tmp_path / "model", trained, text=random_lines(200, 9), size=peaked.vocab_size)
    ckpt.save_tensors(peaked.state_dict(), tmp_path / "model" / run_layout.WEIGHTS)
    monkeypatch.setattr(torch_engine, "max_output_tokens", lambda *_: 11)
    expected = translate_lines(tmp_path / "model", lines, beam_size=1)
    output = export(tmp_path / "model", tmp_path / "out")
    task = "text2text-generation-with-past"
    command = ["optimum-cli", "export", "onnx", "--task", task, "--model", output, tmp_path / "web"]
    subprocess.run(command, check=True, capture_output=True)
    node = ["node", "-e", TO_NODE, str(tmp_path), json.dumps(lines)]
    done = subprocess.run(node, capture_output=True, text=True, check=True)
    found = [line.strip() for line in done.stdout.splitlines()]  # a byte may be a tab
    assert found == [line.strip() for line in expected], done.stderr
    assert len(set(expected)) > 5
