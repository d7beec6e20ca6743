"""Model folders: the configuration, vocabulary and weights that translation needs.

Loading a folder is safe: nothing is unpickled, and nothing in it can name code to run.
"""

from collections.abc import Sequence
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
"""Version of the model folder's format; changes that break loading increase it."""

_CHECKSUM = "tokenizer_sha256"
NO_SETTINGS = ("format", _CHECKSUM)
"""Keys of ``config.yaml`` that are not settings."""


def write_config(folder: Path, job: TrainJob, vocabulary: Path | None = None) -> None:
    """Writes the resolved configuration of a run and the checksum of its vocabulary."""
    values: dict[str, Any] = asdict(job)
    if vocabulary is not None:
        values[_CHECKSUM] = sha256(vocabulary)
    text = yaml.safe_dump(
        # The format comes last: a truncated file has none.
        {**values, "format": FORMAT},
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
    write_text(folder / run_layout.CONFIG, text)


def read_config(folder: Path) -> TrainJob:
    """Reads the configuration of a model folder.

    Raises:
        InputError: It is missing, damaged, or of another format.
    """
    return _read_config(folder)[0]


def _read_config(folder: Path) -> tuple[TrainJob, object]:
    """The configuration and the vocabulary's checksum, which older folders do not have."""
    path = folder / run_layout.CONFIG
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{folder} is not a model folder: cannot read {path.name} ({error.strerror})"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: not valid UTF-8 ({error.reason})") from None
    if "${" in text:
        raise InputError(f"{path}: interpolations (${{…}}) are not allowed in a model folder")
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # also for YAML of other programs
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it has no settings")
    found, checksum = values.pop("format", None), values.pop(_CHECKSUM, None)
    if found is None:
        raise InputError(f"{path} has no format: it is truncated, or was not written by mt-train")
    if found != FORMAT:
        raise InputError(f"{path} has format {found}, but this version reads format {FORMAT}")
    try:
        job = OmegaConf.to_object(OmegaConf.merge(schema(TrainJob), values))
    except ConfigKeyError as error:
        raise InputError(
            f"{path}: unknown setting {error.full_key}; another version wrote this file"
        ) from None
    except (OmegaConfBaseException, InputError, RecursionError, ValueError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    assert isinstance(job, TrainJob)
    return job, checksum


def open_vocabulary(folder: Path) -> tuple[TrainJob, Tokenizer]:
    """Reads the configuration and the vocabulary of a model folder.

    Raises:
        InputError: One of them is missing or damaged, or the vocabulary is a different one.
    """
    job, checksum = _read_config(folder)
    vocabulary = folder / run_layout.TOKENIZER
    tokenizer = Tokenizer(vocabulary)
    if checksum not in (None, sha256(vocabulary)):
        raise InputError(f"{vocabulary} is damaged or of another training run: copy it again")
    return job, tokenizer


def load_model(folder: Path, step: int | None = None) -> tuple[Transformer, Tokenizer, TrainJob]:
    """Loads the model of a folder in ``eval`` mode on the CPU, with its vocabulary and settings.

    Args:
        folder: The folder.
        step: Takes the weights of this checkpoint; None takes the final, averaged weights.

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
            f": copy it again, or set step={steps[-1]} to use a checkpoint"
            if steps
            else " yet: its training has not reached the first checkpoint"
        )
        raise InputError(f"{folder} has no {run_layout.WEIGHTS}{because}")
    model = Transformer(job.model, tokenizer.vocab_size)
    ckpt.load_weights(model, weights)
    for name, tensor in ckpt.parameters(model).items():
        if not tensor.isfinite().all():
            raise InputError(
                f"{weights}: {name} is not finite: the file is damaged, or the training diverged"
            )
    return model.eval(), tokenizer, job


def load_models(
    folder: Path, step: int | None = None, ensemble: Sequence[Path] = ()
) -> tuple[list[Transformer], Tokenizer, TrainJob]:
    """Loads a model and the other members of its ensemble, as ``load_model`` does.

    Returns:
        The models, and the first one's vocabulary and settings.

    Raises:
        InputError: Something in a folder is missing or damaged, or the vocabularies differ.
    """
    model, tokenizer, job = load_model(folder, step)
    models = [model]
    for other in ensemble:
        member, its_tokenizer, _ = load_model(other)
        if its_tokenizer.vocabulary != tokenizer.vocabulary:
            raise InputError(
                f"{folder} and {other} have different vocabularies, but models of an ensemble must "
                "share one (train the second with tokenizer.path=FIRST/tokenizer.model)"
            )
        models.append(member)
    return models, tokenizer, job
