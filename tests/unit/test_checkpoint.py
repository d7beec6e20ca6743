"""Checkpoints: exact, complete or absent."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_mt import checkpoint as ckpt
from transformer_mt import files
from transformer_mt.errors import InputError
from transformer_mt.run_layout import CHECKPOINT_OPTIMIZER, WEIGHTS


def layer(value: float, size: int = 3) -> nn.Linear:
    made = nn.Linear(2, size, bias=False)
    nn.init.constant_(made.weight, value)
    return made


def tensors(value: float, **more: Tensor) -> ckpt.Tensors:
    """The weight of a layer, the state of its optimizer with minus that value, and more of it."""
    weight = torch.full((3, 2), float(value))
    return {WEIGHTS: {"weight": weight}, CHECKPOINT_OPTIMIZER: {"weight.exp_avg": -weight, **more}}


def save(folder: Path, step: int, **more: Tensor) -> ckpt.Checkpoint:
    return ckpt.save_checkpoint(folder, {"step": step}, tensors(step, **more))


def test_the_state_of_a_different_optimizer_is_rejected(tmp_path: Path) -> None:
    saved, live = save(tmp_path, 1), {CHECKPOINT_OPTIMIZER: {"weight.momentum": torch.zeros(3, 2)}}
    with pytest.raises(InputError, match=r"optimizer\.safetensors does not fit .* None"):
        ckpt.restore(saved, live)


@pytest.mark.parametrize(
    ("before", "now", "scale"), [(True, False, 1.0), (False, True, 1.0), (True, True, 8.0)]
)
def test_a_run_resumes_in_fp16_and_in_another_precision(
    tmp_path: Path, before: bool, now: bool, scale: float
) -> None:
    """As on machines that have a T4 on one day and an L4 on the next."""
    key = "loss_scale.factor"
    saved = save(tmp_path, 1, **({key: torch.tensor(8.0)} if before else {}))
    live = tensors(0, **({key: torch.tensor(1.0)} if now else {}))
    ckpt.restore(saved, live)
    assert live[CHECKPOINT_OPTIMIZER].pop(key, 1.0) == scale
    torch.testing.assert_close(live, tensors(1), rtol=0, atol=0)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - 2)


def state(**changes: Any) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "optimizer cut": cut("optimizer.safetensors"),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "no state": lambda f: (f / "state.json").unlink(),
    "empty folder": lambda f: [path.unlink() for path in f.iterdir()],
    "state cut": cut("state.json"),
    "state not UTF-8": lambda f: (f / "state.json").write_bytes(b"\xff"),
    "another format": state(format=1),
    "another number": state(note=3),
    "no checksums": state(sha256={}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    tmp_path: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(ckpt.log, "warning", lambda text, *args: warnings.append(text % args))
    save(tmp_path, 10)
    damaged = save(tmp_path, 20).path
    assert len(ckpt.valid_checkpoints(tmp_path)) == 2
    assert warnings == []
    damage(damaged)
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [10]
    (warning,) = warnings
    assert f"{damaged} cannot be used" in warning
    save(tmp_path, 20)  # training reaches this step again
    assert [c.step for c in ckpt.valid_checkpoints(tmp_path)] == [10, 20]


def test_any_flipped_bit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ckpt.log, "warning", lambda *_: None)
    path = save(tmp_path, 1).path
    rng = np.random.default_rng(0)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        intact = (path / name).read_bytes()
        for place in rng.integers(0, len(intact), 20):
            flipped = bytearray(intact)
            flipped[place] ^= 1 << int(rng.integers(8))
            (path / name).write_bytes(flipped)
            assert ckpt.valid_checkpoints(tmp_path) == []
        (path / name).write_bytes(intact)
    assert len(ckpt.valid_checkpoints(tmp_path)) == 1


def test_a_snapshot_does_not_change_with_the_model(tmp_path: Path) -> None:
    live = tensors(1)
    taken = ckpt.snapshot(live)
    for values in live.values():
        for tensor in values.values():
            tensor.zero_()
    saved = ckpt.save_checkpoint(tmp_path, {"step": 1}, taken).path
    for name, value in (("model", 1), ("optimizer", -1)):
        (found,) = load_file(saved / f"{name}.safetensors").values()
        assert torch.equal(found, torch.full((3, 2), float(value)))


def test_an_interrupted_deletion_leaves_no_damaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(tmp_path, 1)

    def cut(path: Path, **_: Any) -> None:
        next(path.iterdir()).unlink()
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(InterruptedError):
            files.delete_folder(saved.path)
    assert list((tmp_path / "checkpoints").glob("step_*")) == []
    save(tmp_path, 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000001"]


def test_weights_of_a_different_model_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ckpt.save_tensors(layer(1).state_dict(), path)
    wider = layer(2, size=4).state_dict()
    with pytest.raises(InputError, match=r"does not fit .* shape \(3, 2\), expected \(4, 2\)"):
        ckpt.read_tensors(path, wider)
    with pytest.raises(InputError, match=r"0\.weight has shape None"):
        ckpt.read_tensors(path, nn.Sequential(layer(1)).state_dict())
    path.unlink()
    with pytest.raises(InputError, match=r"model\.safetensors is damaged: No such file"):
        ckpt.read_tensors(path, layer(1).state_dict())
