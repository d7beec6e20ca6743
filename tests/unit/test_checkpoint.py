"""Checkpoints: exact, complete or absent; averages."""

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
from support.models import tiny_config

from transformer_mt import checkpoint as ckpt
from transformer_mt import files
from transformer_mt.config import OptimizerConfig
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import adam, named_state


def tiny(seed: int, **config: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(tiny_config(**config), 11)


def training(seed: int) -> tuple[Transformer, torch.optim.Optimizer]:
    model = tiny(seed)
    optimizer = adam(model, OptimizerConfig())
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    return model, optimizer


def update(model: Transformer, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def snapshot(model: Transformer, optimizer: torch.optim.Optimizer) -> ckpt.Snapshot:
    return ckpt.snapshot(model, named_state(model, optimizer))


def save(folder: Path, step: int) -> ckpt.Checkpoint:
    model, optimizer = training(step)
    update(model, optimizer, seed=step)
    return ckpt.save_checkpoint(folder, {"step": step}, snapshot(model, optimizer))


def weights(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_equal(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_state_of_a_different_optimizer_is_rejected(tmp_path: Path) -> None:
    model, optimizer = training(1)
    state = named_state(model, optimizer)
    renamed = {name.replace("exp_avg", "momentum"): tensor for name, tensor in state.items()}
    checkpoint = ckpt.save_checkpoint(tmp_path, {"step": 1}, ckpt.snapshot(model, renamed))
    with pytest.raises(InputError, match=r"optimizer\.safetensors does not fit .* None"):
        ckpt.restore(checkpoint, model, state)


@pytest.mark.parametrize(
    ("before", "now", "scale"), [(True, False, 1.0), (False, True, 1.0), (True, True, 8.0)]
)
def test_a_run_resumes_in_fp16_and_in_another_precision(
    tmp_path: Path, before: bool, now: bool, scale: float
) -> None:
    """As on machines that have a T4 on one day and an L4 on the next."""
    model, optimizer = training(1)
    state, factor = named_state(model, optimizer), {"loss_scale.factor": torch.tensor(8.0)}
    saved = ckpt.snapshot(model, {**state, **(factor if before else {})})
    checkpoint = ckpt.save_checkpoint(tmp_path, {"step": 1}, saved)
    live = {**state, **(factor if now else {})}
    live = {name: torch.ones_like(tensor) for name, tensor in live.items()}
    ckpt.restore(checkpoint, tiny(2), live)
    assert live.pop("loss_scale.factor", 1.0) == scale
    assert_equal(live, state)


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
    model, optimizer = training(1)
    update(model, optimizer, seed=1)
    taken, before = snapshot(model, optimizer), weights(model)
    update(model, optimizer, seed=2)
    saved = ckpt.save_checkpoint(tmp_path, {"step": 1}, taken)
    assert_equal(load_file(saved.path / "model.safetensors"), before)


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
    ckpt.save_tensors(tiny(1).state_dict(), path)
    wider = tiny(1, d_ff=32)
    before = weights(wider)
    with pytest.raises(InputError, match=r"does not fit .*feed_forward.*shape .*16.*expected .*32"):
        ckpt.load_weights(wider, path)
    assert_equal(weights(wider), before)
    with pytest.raises(InputError, match=r"encoder\.1\..* has shape None"):
        ckpt.load_weights(tiny(1, num_encoder_layers=2), path)
    path.unlink()
    with pytest.raises(InputError, match=r"model\.safetensors is damaged: No such file"):
        ckpt.load_weights(tiny(1), path)
