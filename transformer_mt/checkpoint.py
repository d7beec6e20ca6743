"""Checkpoints and model folders: safetensors and JSON, written whole or not at all.

Nothing here unpickles, and nothing in a folder names code to run: loading one is safe.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt.config import TrainJob, schema
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

log = logging.getLogger(__name__)

FORMAT = 2
"""Version of the checkpoint and model folder; a change that breaks loading raises it."""

CONFIG, TOKENIZER, WEIGHTS = "config.yaml", "tokenizer.model", "model.safetensors"
_STATE, _OPTIMIZER = "state.json", "optimizer.safetensors"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its name once written, and never before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a small file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_config(folder: Path, job: TrainJob) -> None:
    """Saves the resolved configuration of a run."""
    text = yaml.safe_dump(
        {"format": FORMAT, **asdict(job)}, sort_keys=False, allow_unicode=True, width=1000
    )
    write_text(folder / CONFIG, text)


def read_config(folder: Path) -> TrainJob:
    """Reads the configuration of a model folder.

    Raises:
        InputError: There is none, or it is of another format or damaged.
    """
    path = folder / CONFIG
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
        if not isinstance(values, dict):
            raise InputError(f"{path} is damaged: it holds no settings")
        found = values.pop("format", None)
        if found != FORMAT:
            raise InputError(f"{path}: format {found}, but this version reads format {FORMAT}")
        job = OmegaConf.to_object(OmegaConf.merge(schema(TrainJob), values))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    assert isinstance(job, TrainJob)
    return job


def load_model(folder: Path) -> tuple[Transformer, Tokenizer, TrainJob]:
    """Opens a model folder for inference: the averaged weights, in ``eval`` mode on the CPU.

    Raises:
        InputError: The folder, or something in it, is missing or damaged.
    """
    if not folder.is_dir():
        raise InputError(f"no model folder {folder}")
    job = read_config(folder)
    if not (folder / WEIGHTS).exists():
        raise InputError(
            f"{folder} has no {WEIGHTS} yet: its training has not come to a first checkpoint"
        )
    tokenizer = Tokenizer(folder / TOKENIZER)
    model = Transformer(job.model, tokenizer.vocab_size)
    load_weights(model, folder / WEIGHTS)
    return model.eval(), tokenizer, job


def save_weights(model: nn.Module, path: Path) -> None:
    """Writes a model's parameters."""
    with atomic(path) as temporary:
        save_file(_parameters(model), temporary)


def load_weights(model: nn.Module, path: Path) -> None:
    """Reads parameters into a model that has just these.

    Raises:
        InputError: The file is missing, damaged, or of a model of another shape.
    """
    _assign(_parameters(model), _load(path), path)


@dataclass(frozen=True)
class Checkpoint:
    """A folder ``checkpoints/step_…`` known to be whole."""

    path: Path
    state: dict[str, Any]
    """What the trainer keeps beside the weights."""

    @property
    def step(self) -> int:
        """Updates done."""
        return int(self.state["step"])


class Stateful(Protocol):
    """What a checkpoint needs to know of an optimizer."""

    def state(self) -> dict[str, Tensor]:
        """The tensors it works on, by name; the names and shapes never change."""
        ...


def save_checkpoint(
    checkpoints: Path, state: dict[str, Any], model: nn.Module, optimizer: Stateful
) -> Checkpoint:
    """Writes ``checkpoints/step_…``: weights, optimizer and state, with their checksums."""
    path = checkpoints / _name(state["step"])
    unfinished = checkpoints / f".{path.name}.tmp"
    for stale in (unfinished, path):
        shutil.rmtree(stale, ignore_errors=True)
    unfinished.mkdir(parents=True)
    files = {WEIGHTS: _parameters(model), _OPTIMIZER: optimizer.state()}
    for name, tensors in files.items():
        save_file(tensors, unfinished / name)
        _sync(unfinished / name)
    state = {"format": FORMAT, **state}
    state["sha256"] = {name: _sha256(unfinished / name) for name in files}
    write_text(unfinished / _STATE, json.dumps(state, indent=2))
    unfinished.rename(path)
    _sync(checkpoints)
    return Checkpoint(path, state)


def latest_checkpoints(checkpoints: Path) -> list[Checkpoint]:
    """The whole checkpoints of a run, oldest first; damaged ones are reported and left out."""
    found = []
    for path in sorted(checkpoints.glob("step_*")):
        try:
            found.append(_verify(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is damaged and left out: %s", path, error)
    return found


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Stateful) -> None:
    """Puts a checkpoint's weights and optimizer state back.

    Raises:
        InputError: The checkpoint is of a model of another shape, or of another optimizer.
    """
    for tensors, name in ((_parameters(model), WEIGHTS), (optimizer.state(), _OPTIMIZER)):
        path = checkpoint.path / name
        _assign(tensors, _load(path), path)


def average(checkpoints: Sequence[Checkpoint], model: nn.Module) -> None:
    """Sets a model's parameters to the mean of several checkpoints' (§6.1)."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in _load(checkpoint.path / WEIGHTS).items():
            value = tensor.double()
            total[name] = total[name] + value if name in total else value
    mean = {name: tensor / len(checkpoints) for name, tensor in total.items()}
    _assign(_parameters(model), mean, checkpoints[-1].path / WEIGHTS)


def prune(checkpoints: Sequence[Checkpoint], keep: int) -> list[Checkpoint]:
    """Deletes all but the last ``keep``, and returns those."""
    for checkpoint in checkpoints[:-keep]:
        shutil.rmtree(checkpoint.path)
    return list(checkpoints[-keep:])


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _assign(own: dict[str, Tensor], tensors: dict[str, Tensor], path: Path) -> None:
    shapes, found = (
        {name: tuple(tensor.shape) for name, tensor in part.items()} for part in (own, tensors)
    )
    if shapes != found:
        name = min(name for name, _ in shapes.items() ^ found.items())
        raise InputError(
            f"{path} does not fit the configuration: {name} has shape {found.get(name)}, "
            f"expected {shapes.get(name)}"
        )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _load(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    return tensors


def _name(step: int) -> str:
    return f"step_{step:08d}"


def _verify(path: Path) -> Checkpoint:
    state = json.loads((path / _STATE).read_text())
    if state["format"] != FORMAT:
        raise ValueError(f"format {state['format']}, but this version reads format {FORMAT}")
    # state.json bears no checksum of its own; a wrong step is what would do harm.
    if path.name != _name(state["step"]):
        raise ValueError(f"{_STATE} says step {state['step']}")
    for name in (WEIGHTS, _OPTIMIZER):
        if _sha256(path / name) != state["sha256"][name]:
            raise ValueError(f"the checksum of {name} is wrong")
    return Checkpoint(path, state)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
