"""A model folder opened at one of its checkpoints."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.config import DataConfig, ModelConfig, SourceConfig, TokenizerConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

SIZES = ModelConfig(d_model=8, d_ff=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


class NoOptimizer:
    def state(self) -> dict[str, Tensor]:
        return {"moment": torch.zeros(1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 5 and 20, and no average yet."""
    source = [SourceConfig(sample="train")]
    data = DataConfig(src_lang="en", tgt_lang="de", train=source, valid=source)
    model_folder.write_config(tmp_path, TrainJob(data=data, model=SIZES))
    text = train_tokenizer(["a b c d"] * 9, TokenizerConfig(vocab_size=269))
    (tmp_path / run_layout.TOKENIZER).write_bytes(text)
    for step in (5, 20):
        model = Transformer(SIZES, 269)
        with torch.no_grad():
            model.embedding.weight.fill_(step)
        tensors = ckpt.snapshot(model, NoOptimizer())
        ckpt.save_checkpoint(tmp_path, {"step": step}, tensors)
    return tmp_path


@pytest.mark.parametrize("step", [5, 20])
def test_weights_of_a_step(folder: Path, step: int) -> None:
    model, tokenizer, job = model_folder.load_model(folder, step)
    assert model.embedding.weight.unique().tolist() == [step]
    assert not model.training
    assert (tokenizer.vocab_size, job.model) == (269, SIZES)


def test_missing_step(folder: Path) -> None:
    with pytest.raises(InputError, match="has no checkpoint of step 6; it has: 5, 20"):
        model_folder.load_model(folder, 6)
    with pytest.raises(InputError, match="no model folder"):
        model_folder.load_model(folder / "nowhere", 5)


def test_a_damaged_step(folder: Path) -> None:
    weights = folder / "checkpoints" / "step_00000005" / run_layout.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="step_00000005 cannot be used: the checksum of model"):
        model_folder.load_model(folder, 5)
    model_folder.load_model(folder, 20)


def test_unknown_setting(folder: Path) -> None:
    config = folder / run_layout.CONFIG
    config.write_text(config.read_text().replace("\ntrain:\n", "\ntrain:\n  r_drop: 5.0\n"))
    with pytest.raises(InputError, match=r"unknown setting train\.r_drop; another version wrote"):
        model_folder.read_config(folder)
