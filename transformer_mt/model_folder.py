"""Model folders: settings, vocabulary and weights, which is all that a translation needs.

Nothing here unpickles, and nothing in a folder names code to run: loading one is safe.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.config import TrainJob, schema
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import sha256, write_text
from transformer_mt.model.transformer import Transformer

FORMAT = 2
"""Version of the model folder; a change that breaks loading raises it."""

_CHECKSUM = "tokenizer_sha256"
NO_SETTINGS = ("format", _CHECKSUM)
"""What ``config.yaml`` holds beside the settings."""


def write_config(folder: Path, job: TrainJob, vocabulary: Path | None = None) -> None:
    """Saves the resolved configuration of a run, and the checksum of its vocabulary."""
    values: dict[str, Any] = asdict(job)
    if vocabulary is not None:
        values[_CHECKSUM] = sha256(vocabulary)
    text = yaml.safe_dump(
        # The format last: a file that was cut off has none.
        {**values, "format": FORMAT},
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
    write_text(folder / run_layout.CONFIG, text)


def read_config(folder: Path) -> TrainJob:
    """Reads the configuration of a model folder.

    Raises:
        InputError: There is none, or it is of another format or damaged.
    """
    return _read_config(folder)[0]


def _read_config(folder: Path) -> tuple[TrainJob, object]:
    """The configuration, and the checksum of the vocabulary, which older folders do not have."""
    path = folder / run_layout.CONFIG
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{folder} is no model folder: cannot read {path.name} ({error.strerror})"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: not valid UTF-8 ({error.reason})") from None
    if "${" in text:
        raise InputError(f"{path}: interpolations (${{…}}) are not allowed in a model folder")
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # also what none of us wrote
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it holds no settings")
    found, checksum = values.pop("format", None), values.pop(_CHECKSUM, None)
    if found is None:
        raise InputError(f"{path} names no format: it is cut off, or not written by mt-train")
    if found != FORMAT:
        raise InputError(f"{path}: format {found}, but this version reads format {FORMAT}")
    train = values.get("train")
    if isinstance(train, dict) and train.get("r_drop") == 0:
        del train["r_drop"]  # a setting of folders of before 2026-11-21, and off
    try:
        job = OmegaConf.to_object(OmegaConf.merge(schema(TrainJob), values))
    except ConfigKeyError as error:
        raise InputError(
            f"{path}: this version knows no setting {error.full_key}; another one wrote it"
        ) from None
    except (OmegaConfBaseException, InputError, RecursionError, ValueError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    assert isinstance(job, TrainJob)
    return job, checksum


def open_vocabulary(folder: Path) -> tuple[TrainJob, Tokenizer]:
    """The configuration and the vocabulary of a model folder.

    Raises:
        InputError: One of them is missing or damaged, or they do not belong together.
    """
    job, checksum = _read_config(folder)
    vocabulary = folder / run_layout.TOKENIZER
    tokenizer = Tokenizer(vocabulary)
    if checksum not in (None, sha256(vocabulary)):
        raise InputError(f"{vocabulary} is damaged, or not that of the training: copy it again")
    return job, tokenizer


def load_model(folder: Path, step: int | None = None) -> tuple[Transformer, Tokenizer, TrainJob]:
    """Opens a model folder for inference: the averaged weights, in ``eval`` mode on the CPU.

    Args:
        folder: The folder.
        step: Takes the weights of this checkpoint instead.

    Raises:
        InputError: The folder, or something in it, is missing or damaged.
    """
    if not folder.is_dir():
        raise InputError(f"no model folder {folder.absolute()}")
    job, tokenizer = open_vocabulary(folder)
    place = folder if step is None else ckpt.open_checkpoint(folder, step).path
    weights = place / run_layout.WEIGHTS
    if not weights.exists():
        steps = ckpt.steps(folder)
        because = (
            f": copy it again, or take a checkpoint, as step={steps[-1]}"
            if steps
            else " yet: its training has not come to a first checkpoint"
        )
        raise InputError(f"{folder} has no {run_layout.WEIGHTS}{because}")
    model = Transformer(job.model, tokenizer.vocab_size)
    ckpt.load_weights(model, weights)
    for name, tensor in ckpt.parameters(model).items():
        if not tensor.isfinite().all():
            raise InputError(
                f"{weights}: {name} is not finite: the file is damaged, or its training diverged"
            )
    return model.eval(), tokenizer, job
