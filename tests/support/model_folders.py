"""Model folders with tiny, untrained models, and jobs that use them."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from support.models import make_translator
from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.cli import main as commands
from transformer_mt.config import (
    DataConfig,
    ModelConfig,
    SearchConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
    TranslateJob,
)
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import ModelFolder

TEXT = ["the dog jumps", "a quick brown fox", "the lazy barn sleeps over the house"] * 20
JOB = TrainJob(
    data=DataConfig(
        src_lang="en",
        tgt_lang="de",
        train=[SourceConfig(tsv="never.tsv")],
        valid=[SourceConfig(tsv="read.tsv")],
    ),
    model=ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1),
    decode=SearchConfig(beam_size=2, max_extra_tokens=3),
)
VOCAB_SIZE = 290


@cache
def vocabulary(text: tuple[str, ...], size: int) -> bytes:
    return train_tokenizer(text, TokenizerConfig(vocab_size=size))


def write_model(
    folder: Path,
    job: TrainJob = JOB,
    seed: int = 7,
    text: Sequence[str] = TEXT,
    size: int = VOCAB_SIZE,
) -> None:
    folder.mkdir()
    model_folder.write_config(folder, job)
    (folder / run_layout.TOKENIZER).write_bytes(vocabulary(tuple(text), size))
    torch.manual_seed(seed)
    ckpt.save_tensors(Transformer(job.model, size).state_dict(), folder / run_layout.WEIGHTS)


def save_step(folder: Path, step: int, model: Transformer) -> None:
    """Writes the weights of a model as a checkpoint of a run."""
    tensors = {run_layout.WEIGHTS: model.state_dict(), run_layout.CHECKPOINT_OPTIMIZER: {}}
    ckpt.save_checkpoint(folder, {"step": step}, tensors)


def convert(folder: Path) -> None:
    """For CTranslate2: otherwise the first use does so, with a message."""
    find_or_convert(ModelFolder(folder), "float32")


def load_folder(folder: Path, step: int | None = None) -> tuple[Transformer, Tokenizer, TrainJob]:
    """The model of a folder, its vocabulary and its settings."""
    opened = ModelFolder(folder, step)
    return opened.load_model(), opened.tokenizer, model_folder.read_config(opened.path, TrainJob)


def open_translator(folder: Path, *others: Path, **settings: Any) -> Translator:
    """A translator by PyTorch, of several folders an ensemble."""
    network, tokenizer, job = load_folder(folder)
    ensemble = [ModelFolder(other).load_model() for other in others]
    decode = replace(job.decode.for_job(), **settings)
    return make_translator(network, tokenizer, decode, Normalizer(job.data), ensemble)


def translate_lines(model: Path, lines: list[str], **settings: Any) -> list[str]:
    return open_translator(model, **settings).translate(lines)


def error_of(capfd: pytest.CaptureFixture[str], **settings: Any) -> str:
    """The one-line error of a translation job that prints nothing."""
    with pytest.raises((InputError, OSError)) as caught:
        commands.translate(TranslateJob(**{"device": "cpu", **settings}))
    assert capfd.readouterr() == ("", "")
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Payload:
    """Creates a file in the working directory when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch HARMED",)
