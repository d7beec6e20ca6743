"""The table of model settings in ``cli/README.md``: engines and exports agree, or refuse."""

import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support.model_folders import JOB, TEXT, VOCAB_SIZE, write_model
from support.paths import ROOT
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import export, model_folder, run_layout
from transformer_mt.batch import Packed
from transformer_mt.config import ExportJob, ModelConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

SMALL: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_ff": 24}
"""Not in the table, and faster."""


def table() -> dict[str, list[str]]:
    """The settings of each row, and its entries: PyTorch, CTranslate2, transformers."""
    page = (ROOT / "transformer_mt/cli/README.md").read_text(encoding="utf-8")
    _, rows = page.split("| settings | `engine=torch` |", 1)
    cells = [line.split(" | ") for line in rows.split("\n\n")[0].splitlines()[2:]]
    return {
        " ".join(re.findall(r"`(.+?)`", row[0])): [c.strip(" |") for c in row[1:]] for row in cells
    }


TABLE = table()
CLASSES = {"MarianMT": "MarianMTModel", "Pegasus": "PegasusForConditionalGeneration"}


def settings(row: str) -> dict[str, Any]:
    found = OmegaConf.to_container(OmegaConf.from_dotlist(row.split()))
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


@pytest.fixture(params=TABLE)
def row(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, row: str) -> Path:
    """A folder with a random model of a row."""
    config = ModelConfig(**SMALL, **settings(row))
    write_model(tmp_path / "model", replace(JOB, model=config))
    torch.manual_seed(2)
    model = Transformer(config, VOCAB_SIZE)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases and norms, which are constant initially
            parameter.data += 0.1 * torch.randn_like(parameter)
    ckpt.save_tensors(ckpt.parameters(model), tmp_path / "model" / run_layout.WEIGHTS)
    return tmp_path / "model"


def logits(model: Transformer, src: list[int], tgt_in: list[int]) -> Tensor:
    source = Packed.from_sequences([src])
    with torch.inference_mode():
        hidden = model.decode(Packed.from_sequences([tgt_in]), model.encode(source), source)
        return model.logits(hidden)


def test_every_setting_of_the_architecture_is_in_the_table() -> None:
    sizes = {"d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"}
    others = {"dropout", "max_positions"}
    named = {name for row in TABLE for name in settings(row)}
    assert named == {item.name for item in fields(ModelConfig)} - sizes - others
    for item in fields(ModelConfig):
        for name in list(item.metadata.get("names", ()))[1:]:
            assert f"{item.name}={name}" in TABLE


def test_ctranslate2(folder: Path, row: str) -> None:
    ct2 = pytest.importorskip("ctranslate2")
    job = ExportJob(model=str(folder), format="ctranslate2", output=f"{folder}_ct2")
    assert TABLE[row][0] == "yes"
    if TABLE[row][1] == "no":
        with pytest.raises(InputError, match=r"^[^\n]*model\.d_k[^\n]*$"):
            export(job)
        return
    converted = ct2.Translator(str(export(job)))
    model, tokenizer, _ = model_folder.load_model(folder)
    for source, target in pairwise(TEXT[:4]):
        (src,), (tgt,) = tokenizer.encode([source]), tokenizer.encode([target])
        (scored,) = converted.score_batch([tokenizer.pieces(src)], [tokenizer.pieces(tgt)])
        rows = logits(model, [*src, EOS], [BOS, *tgt]).log_softmax(-1)
        expected = rows[range(len(tgt) + 1), [*tgt, EOS]]
        torch.testing.assert_close(
            torch.tensor(scored.log_probs), expected, rtol=0, atol=1e-5 * float(rows.abs().max())
        )


def test_transformers(folder: Path, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    job = ExportJob(model=str(folder), format="transformers", output=f"{folder}_transformers")
    if TABLE[row][2] == "no":
        with pytest.raises(InputError, match=r"^format=transformers does not [^\n]*$"):
            export(job)
        return
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        export(job), output_loading_info=True
    )
    assert type(theirs).__name__ == CLASSES[TABLE[row][2]]
    assert not any(report.values())  # neither missing nor unexpected weights
    src, tgt_in = [5, 9, 200, 17, EOS], [BOS, 9, 11, 200, 15]
    expected = logits(model_folder.load_model(folder)[0], src, tgt_in)
    with torch.inference_mode():
        ids = {"input_ids": torch.tensor([src]), "decoder_input_ids": torch.tensor([tgt_in])}
        found = theirs.eval()(**ids).logits[0]
    largest = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6 * largest)
