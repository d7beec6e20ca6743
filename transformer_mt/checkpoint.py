"""Checkpoints, which a run goes on from: safetensors and JSON, written whole or not at all."""

import hashlib
import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt import run_layout
from transformer_mt.errors import InputError
from transformer_mt.files import atomic, sha256, sync, write_text

log = logging.getLogger(__name__)

FORMAT = 3
"""Version of the checkpoint; a change that breaks going on from one raises it."""

_SHA256 = "sha256"
_RUNNING_MEAN = "running_mean."
"""Begins the names, beside the optimizer's, of a running mean of the weights."""


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes a file of tensors atomically, their checksum in its header."""
    with atomic(path) as temporary:
        _write(tensors, temporary, {_SHA256: _tensors_digest(tensors)})


def load_weights(model: nn.Module, path: Path) -> None:
    """Reads parameters into a model that has just these.

    Raises:
        InputError: The file is missing, damaged, or of a model of another shape.
    """
    tensors = _load(path)
    with safe_open(path, "pt") as file:
        expected = (file.metadata() or {}).get(_SHA256)
    if expected not in (None, _tensors_digest(tensors)):
        raise InputError(f"{path} is damaged: its checksum is wrong; copy it again")
    _assign(parameters(model), tensors, path)


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

    @property
    def validation(self) -> dict[str, float] | None:
        """What validating it gave, if that came to its end."""
        try:
            found = json.loads(
                (self.path / run_layout.CHECKPOINT_VALIDATION).read_text(encoding="utf-8")
            )
            values: dict[str, float] = found["values"]
            return values if _digest(values) == found["sha256"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Stateful(Protocol):
    """What a checkpoint needs to know of an optimizer, or of whatever holds one."""

    def state(self) -> dict[str, Tensor]:
        """The tensors it works on, by name; the names and shapes never change."""
        ...


Snapshot = dict[str, dict[str, Tensor]]
"""The tensors of a checkpoint, by file and name."""


def snapshot(model: nn.Module, optimizer: Stateful) -> Snapshot:
    """A copy, in the CPU's memory, of all that training changes."""
    return {
        file: {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
        for file, tensors in _tensors(model, optimizer).items()
    }


def save_checkpoint(run_dir: Path, state: dict[str, Any], tensors: Snapshot) -> Checkpoint:
    """Writes ``checkpoints/step_…``: weights, optimizer and state, with their checksums."""
    path = run_dir / run_layout.CHECKPOINTS / _name(state["step"])
    unfinished = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    if path.exists():
        delete(path)
    unfinished.mkdir(parents=True)
    try:
        for name, values in tensors.items():
            _write(values, unfinished / name)
            sync(unfinished / name)
        state = {"format": FORMAT, **state}
        state["sha256"] = {name: sha256(unfinished / name) for name in tensors}
        state["sha256"][run_layout.CHECKPOINT_STATE] = _state_digest(state)
        write_text(unfinished / run_layout.CHECKPOINT_STATE, json.dumps(state, indent=2))
        unfinished.rename(path)
    finally:  # on a full disk its space is needed
        shutil.rmtree(unfinished, ignore_errors=True)
    sync(path.parent)
    return Checkpoint(path, state)


def write_validation(checkpoint: Checkpoint, values: dict[str, float]) -> None:
    """Notes in a checkpoint what validating it gave."""
    content = {"values": values, "sha256": _digest(values)}
    write_text(checkpoint.path / run_layout.CHECKPOINT_VALIDATION, json.dumps(content))


def whole_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Those of a run, oldest first; damaged ones, or of another format, are told and left out."""
    found = []
    for path in sorted((run_dir / run_layout.CHECKPOINTS).glob("step_*")):
        try:
            found.append(_verify(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be used and is left out: %s", path, error)
    return found


def checkpoint_of(run_dir: Path, step: int) -> Checkpoint:
    """The checkpoint of a run at a step.

    Raises:
        InputError: There is none, or it is damaged.
    """
    path = run_dir / run_layout.CHECKPOINTS / _name(step)
    if not path.is_dir():
        found = ", ".join(map(str, steps(run_dir))) or "none"
        raise InputError(f"{run_dir} has no checkpoint of step {step}; it has: {found}")
    try:
        return _verify(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def steps(run_dir: Path) -> list[int]:
    """The steps that a run has checkpoints of, whole or not, in order."""
    found = (run_dir / run_layout.CHECKPOINTS).glob("step_" + "[0-9]" * 8)
    return sorted(int(path.name.removeprefix("step_")) for path in found)


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Stateful) -> None:
    """Puts a checkpoint's weights and optimizer state back.

    Raises:
        InputError: The checkpoint is of a model of another shape, or of another optimizer.
    """
    for name, tensors in _tensors(model, optimizer).items():
        path = checkpoint.path / name
        _assign(tensors, _load(path), path)


def mean(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights (§6.1), taken in float64."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        weights = _load(checkpoint.path / run_layout.WEIGHTS)
        for name, tensor in weights.items():
            value = tensor.double()
            total[name] = total[name].add_(value) if name in total else value
    return {n: (total[n] / len(checkpoints)).to(tensor.dtype) for n, tensor in weights.items()}


def running_mean(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The running mean of the weights that training kept beside them."""
    return {
        name.removeprefix(_RUNNING_MEAN): tensor
        for name, tensor in _load(checkpoint.path / run_layout.CHECKPOINT_OPTIMIZER).items()
        if name.startswith(_RUNNING_MEAN)
    }


def named_running_mean(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A running mean of the weights by the names that ``running_mean`` looks for."""
    return {_RUNNING_MEAN + name: tensor for name, tensor in tensors.items()}


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """A model's weights, the tensors in use, by name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _tensors(model: nn.Module, optimizer: Stateful) -> Snapshot:
    return {
        run_layout.WEIGHTS: parameters(model),
        run_layout.CHECKPOINT_OPTIMIZER: optimizer.state(),
    }


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


def _write(tensors: dict[str, Tensor], path: Path, header: dict[str, str] | None = None) -> None:
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, header)  # as mode 0600, whatever the umask
    path.chmod(mode)


def _load(path: Path) -> dict[str, Tensor]:
    try:
        path.open("rb").close()  # safetensors would call what may not be read absent
        tensors: dict[str, Tensor] = load_file(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({error}): copy it again") from None
    return tensors


def delete(path: Path) -> None:
    """Deletes a checkpoint, at once: cut short, it leaves none that looks damaged."""
    hidden = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)


def _name(step: int) -> str:
    return f"step_{step:08d}"


def _verify(path: Path) -> Checkpoint:
    state = json.loads((path / run_layout.CHECKPOINT_STATE).read_text())
    if state["format"] != FORMAT:
        raise ValueError(f"format {state['format']}, but this version reads format {FORMAT}")
    if path.name != _name(state["step"]):
        raise ValueError(f"{run_layout.CHECKPOINT_STATE} says step {state['step']}")
    if _state_digest(state) != state["sha256"][run_layout.CHECKPOINT_STATE]:
        raise ValueError(f"the checksum of {run_layout.CHECKPOINT_STATE} is wrong")
    for name in (run_layout.WEIGHTS, run_layout.CHECKPOINT_OPTIMIZER):
        if sha256(path / name) != state["sha256"][name]:
            raise ValueError(f"the checksum of {name} is wrong")
    return Checkpoint(path, state)


def _state_digest(state: dict[str, Any]) -> str:
    """Checksum of a state, in which it has itself no part."""
    files = {
        name: digest
        for name, digest in state["sha256"].items()
        if name != run_layout.CHECKPOINT_STATE
    }
    return _digest({**state, "sha256": files})


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _tensors_digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
