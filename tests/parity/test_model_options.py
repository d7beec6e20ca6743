"""Models with each setting: engines and exports agree with PyTorch, or refuse, as documented."""

from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from omegaconf import OmegaConf
from support.errors import input_error
from support.model_folders import JOB, TEXT, VOCAB_SIZE, load_folder, write_model
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_mt import checkpoint as ckpt
from transformer_mt import export, run_layout
from transformer_mt.batch import Packed
from transformer_mt.config import ExportJob, ModelConfig
from transformer_mt.conversion.transformers_model import convert_weights, model_settings
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import ModelFolder

SMALL: dict[str, Any] = {
    "d_model": 128,
    "num_heads": 2,
    "d_ff": 24,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
}
"""Not in the table, and faster; heads of 64 dimensions, the default."""
TABLE = {
    "": ["yes", "yes", "MarianMT"],
    "norm=pre": ["yes", "yes", "Blenderbot"],
    "positions=learned": ["yes", "yes", "no"],
    "positions=learned norm=pre": ["yes", "yes", "Blenderbot"],
    "d_k=32 d_v=32": ["yes", "no", "no"],
    "d_k=128": ["yes", "no", "no"],
    "attention_bias=true": ["yes", "yes", "MarianMT"],
    "activation=swish": ["yes", "yes", "MarianMT"],
    "activation=gelu": ["yes", "yes", "MarianMT"],
    "layer_norm_eps=1e-5": ["yes", "yes", "MarianMT"],
    "tied_embeddings=decoder": ["yes", "yes", "MarianMT"],
    "tied_embeddings=none": ["yes", "yes", "MarianMT"],
    "tied_embeddings=decoder norm=pre": ["yes", "yes", "no"],
    "tied_embeddings=none norm=pre": ["yes", "yes", "no"],
    "scale_embeddings=false": ["yes", "yes", "MarianMT"],
    "output_bias=true": ["yes", "yes", "MarianMT"],
    "attention_dropout=0.1 activation_dropout=0.1": ["yes", "yes", "MarianMT"],
}
"""Each setting, in PyTorch, CTranslate2 and transformers."""
COMBINATIONS = {
    "num_encoder_layers=3 num_decoder_layers=2": ["yes", "yes", "MarianMT"],
    "norm=pre attention_bias=true output_bias=true activation=gelu layer_norm_eps=1e-4"
    " scale_embeddings=false": ["yes", "yes", "Blenderbot"],
    "d_k=4 d_v=4 num_heads=3 d_model=16": ["yes", "no", "no"],
    "d_v=128": ["yes", "no", "no"],
    "d_k=64 d_v=64": ["yes", "yes", "MarianMT"],
}
"""Further rows."""
ROWS = TABLE | COMBINATIONS
CLASSES = {"MarianMT": "MarianMTModel", "Blenderbot": "BlenderbotForConditionalGeneration"}


def settings(row: str) -> dict[str, Any]:
    found = OmegaConf.to_container(OmegaConf.from_dotlist(row.split()))
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, row: str) -> Path:
    """A folder with a random model of a row."""
    config = ModelConfig(**{**SMALL, **settings(row)})
    write_model(tmp_path / "model", replace(JOB, model=config))
    torch.manual_seed(2)
    model = Transformer(config, VOCAB_SIZE)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases and norms, which are constant initially
            parameter.data += 0.1 * torch.randn_like(parameter)
    ckpt.save_tensors(model.state_dict(), tmp_path / "model" / run_layout.WEIGHTS)
    return tmp_path / "model"


@torch.inference_mode()
def logits(model: Transformer, src: list[int], tgt_in: list[int]) -> Tensor:
    source = Packed.from_sequences([src])
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
    job = ExportJob(model=str(folder), format="ctranslate2", output=f"{folder}_ct2")
    assert ROWS[row][0] == "yes"
    if ROWS[row][1] == "no":
        with input_error(r"model\.d_[kv]="):
            export(job)
        return
    converted = ctranslate2.Translator(str(export(job)))
    model, tokenizer, _ = load_folder(folder)
    for source, target in pairwise(TEXT[:4]):
        src, tgt = tokenizer.encode(source), tokenizer.encode(target)
        (scored,) = converted.score_batch([tokenizer.pieces(src)], [tokenizer.pieces(tgt)])
        rows = logits(model, [*src, EOS], [BOS, *tgt]).log_softmax(-1)
        expected = rows[range(len(tgt) + 1), [*tgt, EOS]]
        torch.testing.assert_close(
            torch.tensor(scored.log_probs), expected, rtol=0, atol=1e-5 * float(rows.abs().max())
        )


SOURCES = [[5, 9, 200, 17, 4, EOS], [30, 31, EOS], [288, EOS]]
TARGETS = [[BOS, 7, 7, 100], [BOS, 250], [BOS, 9, 11, 13, 15, 17]]


@torch.inference_mode()
def logits_of_transformers(model: Any) -> list[Tensor]:
    """Of one batch with padding."""
    src, tgt = (
        pad_sequence([torch.tensor(row) for row in rows], True, PAD) for rows in (SOURCES, TARGETS)
    )
    found = model(input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt).logits
    return [rows[: len(target)] for rows, target in zip(found, TARGETS, strict=True)]


def assert_logits_are_equal(ours: Transformer, theirs: Any) -> None:
    expected = torch.cat([logits(ours, *pair) for pair in zip(SOURCES, TARGETS, strict=True)])
    found = torch.cat(logits_of_transformers(theirs.eval()))
    # With the other library's ε in the norms, they differ by 1e-5 of the largest and more.
    limit = 5e-6 * float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import transformers

    return transformers


def test_transformers(folder: Path, row: str, transformers: Any) -> None:
    job = ExportJob(model=str(folder), format="transformers", output=f"{folder}_transformers")
    if ROWS[row][2] == "no":
        with input_error("^format=transformers does not support ") as caught:
            export(job)
        message = str(caught.value)
        assert f"model.{row.split()[0]}" in message
        assert ("format=ctranslate2" in message) == (ROWS[row][1] == "yes")
        return
    load = transformers.AutoModelForSeq2SeqLM.from_pretrained
    theirs, report = load(export(job), output_loading_info=True)
    assert type(theirs).__name__ == CLASSES[ROWS[row][2]]
    assert not any(report.values())  # neither missing nor unexpected weights
    assert_logits_are_equal(ModelFolder(folder).load_model(), theirs)


@pytest.mark.parametrize("tied", ["decoder", "none"])
def test_transformers_with_vocabularies_of_different_sizes(transformers: Any, tied: str) -> None:
    config = ModelConfig(**SMALL, tied_embeddings=tied)
    torch.manual_seed(1)
    ours = Transformer(config, 290, src_vocab_size=310).eval()
    assert (ours.src_vocab_size, ours.vocab_size) == (310, 290)
    theirs = transformers.MarianMTModel(transformers.MarianConfig(**model_settings(ours, 50)))
    missing, unexpected = theirs.load_state_dict(convert_weights(ours, 50), strict=False)
    assert not unexpected
    assert {name.split(".")[-2] for name in missing} <= {"embed_positions", "lm_head"}
    theirs.tie_weights()
    assert_logits_are_equal(ours, theirs)
