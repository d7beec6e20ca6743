"""Checkpoints of a run: saving, verifying, loading and averaging; safetensors and JSON only."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from transformer_mt.errors import InputError
from transformer_mt.files import atomic, new_folder, read_json, reading, sha256, write_json
from transformer_mt.run_layout import (
    CHECKPOINT_NAME,
    CHECKPOINT_OPTIMIZER,
    CHECKPOINT_PATTERN,
    CHECKPOINT_STATE,
    CHECKPOINTS,
    WEIGHTS,
)

log = logging.getLogger(__name__)

FORMAT = 4
"""Version of the checkpoint format; raised by every change that breaks resuming."""

_LOSS_SCALE = "loss_scale."
"""Prefix of the tensors of the fp16 loss scale. A checkpoint may have them or not: a run may resume
on a GPU with another precision."""


_WRONG_CHECKSUM = "its checksum is wrong"


@dataclass(frozen=True)
class Checkpoint:
    """A folder ``checkpoints/step_…`` whose checksums have been verified."""

    path: Path
    state: dict[str, Any]
    """The training state: the content of ``state.json`` except its format and checksums."""
    checksums: dict[str, str]
    """SHA-256 of the files of tensors, by name."""

    @property
    def step(self) -> int:
        """Number of updates done."""
        return int(self.state["step"])


Tensors = dict[str, dict[str, Tensor]]
"""The tensors of a checkpoint: those of the model, in ``model.safetensors``, and of the optimizer,
in ``optimizer.safetensors``, by file and name."""


def snapshot(live: Tensors) -> Tensors:
    """Copies all tensors that training changes to CPU memory."""
    return {
        file: {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
        for file, tensors in live.items()
    }


def save_checkpoint(run_dir: Path, state: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Writes ``checkpoints/step_…`` atomically: tensors, their state with ``step``, checksums."""
    path = run_dir / CHECKPOINTS / CHECKPOINT_NAME.format(state["step"])
    with new_folder(path, replace=True) as unfinished:
        for name, values in tensors.items():
            _write(values, unfinished / name)
        checksums = {name: sha256(unfinished / name) for name in tensors}
        _write_state(unfinished, state, checksums)
    return Checkpoint(path, state, checksums)


def update_state(checkpoint: Checkpoint, state: dict[str, Any]) -> Checkpoint:
    """Replaces the state of a checkpoint atomically, as after its validation."""
    _write_state(checkpoint.path, state, checkpoint.checksums)
    return replace(checkpoint, state=state)


def valid_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Verified checkpoints of a run, oldest first; logs a warning for each invalid one."""
    found = []
    for path in sorted((run_dir / CHECKPOINTS).glob(CHECKPOINT_PATTERN)):
        try:
            found.append(_verify(path))
        except InputError as error:
            log.warning("%s cannot be used, and may be deleted: %s", path, error)
    return found


def open_checkpoint(run_dir: Path, step: int) -> Checkpoint:
    """The checkpoint of one step; raises ``InputError`` if it does not exist or is invalid."""
    path = run_dir / CHECKPOINTS / CHECKPOINT_NAME.format(step)
    if not path.is_dir():
        names = sorted(item.name for item in path.parent.glob(CHECKPOINT_PATTERN))
        found = ", ".join(names) or "none"
        raise InputError(f"{run_dir} has no checkpoint of step {step}; it has: {found}")
    return _verify(path)


def restore(checkpoint: Checkpoint, live: Tensors) -> None:
    """Copies a checkpoint's weights and optimizer state into the live tensors.

    Raises:
        InputError: The checkpoint is of a model of a different shape, or of another optimizer.
    """
    for name, tensors in live.items():
        values = read_tensors(checkpoint.path / name, tensors)
        for key, tensor in tensors.items():
            if key in values:
                tensor.copy_(values[key])


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """Element-wise mean of several checkpoints' weights (§6.1), computed in float64."""
    first, *others = checkpoints
    weights = read_tensors(first.path / WEIGHTS)
    total = {name: tensor.double() for name, tensor in weights.items()}
    for checkpoint in others:
        for name, tensor in read_tensors(checkpoint.path / WEIGHTS).items():
            total[name] += tensor
    return {n: (total[n] / len(checkpoints)).to(tensor.dtype) for n, tensor in weights.items()}


def save_tensors(
    tensors: dict[str, Tensor], path: Path, header: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file atomically, with a checksum and other entries in its header."""
    with atomic(path) as temporary:
        _write(tensors, temporary, {**(header or {}), "sha256": _tensors_digest(tensors)})


def read_tensors(path: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, which must have the names and shapes of ``like``.

    Files of other programs have no checksum, and are not verified.
    """
    with reading(path, SafetensorError, remedy="copy it again"), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = (file.metadata() or {}).get("sha256")
        if checksum is not None and checksum != _tensors_digest(tensors):
            raise ValueError(_WRONG_CHECKSUM)
    if like is not None:
        _check_shapes(like, path, tensors)
    return tensors


def _check_shapes(targets: Mapping[str, Tensor], path: Path, tensors: dict[str, Tensor]) -> None:
    for name in sorted(targets.keys() | tensors.keys()):
        expected = tuple(targets[name].shape) if name in targets else None
        found = tuple(tensors[name].shape) if name in tensors else None
        is_optional = name.startswith(_LOSS_SCALE) and None in (expected, found)
        if found != expected and not is_optional:
            raise InputError(
                f"{path} does not fit the configuration: {name} has shape {found}, "
                f"expected {expected}"
            )


def _write(tensors: dict[str, Tensor], path: Path, header: dict[str, str] | None = None) -> None:
    # Not save_file, which leaves files with names of its own if it is killed, and sets mode 0600.
    path.write_bytes(save(tensors, header))


def _verify(path: Path) -> Checkpoint:
    """Reads a checkpoint's state and compares all checksums; ``InputError`` if one is wrong."""
    state = read_json(path / CHECKPOINT_STATE, {"format": int, "sha256": dict})
    if (version := state["format"]) != FORMAT:
        raise InputError(f"{path} has format {version}, but this version reads format {FORMAT}")
    with reading(path / CHECKPOINT_STATE):
        own = state["sha256"].pop(CHECKPOINT_STATE, None)
        if own != _digest(state):
            raise ValueError(_WRONG_CHECKSUM)
    del state["format"]
    checksums: dict[str, str] = state.pop("sha256")
    for name in (WEIGHTS, CHECKPOINT_OPTIMIZER):
        with reading(path / name):
            if sha256(path / name) != checksums[name]:
                raise ValueError(_WRONG_CHECKSUM)
    return Checkpoint(path, state, checksums)


def _write_state(folder: Path, state: dict[str, Any], checksums: dict[str, str]) -> None:
    """Writes ``state.json`` with the checksums of all files."""
    content = {"format": FORMAT, **state, "sha256": checksums}
    checksum = {CHECKPOINT_STATE: _digest(content)}  # without this checksum
    content["sha256"] = {**checksums, **checksum}
    write_json(folder / CHECKPOINT_STATE, content)


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _tensors_digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
