"""Checkpoints of a run: background writing, pruning, the final model, failed writes."""

import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_mt import checkpoint as ckpt
from transformer_mt.config import TrainConfig
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.training.checkpoint_manager import CheckpointManager
from transformer_mt.training.progress import StoppingCriteria, TrainingState


def manager(
    folder: Path, found: list[ckpt.Checkpoint] | None = None, warmup: int = 0, **config: Any
) -> CheckpointManager:
    settings = TrainConfig(checkpoint_every=10, **config)
    criteria, world = StoppingCriteria(settings, 1, warmup), World(torch.device("cpu"))
    return CheckpointManager(folder, settings, criteria, found or [], world)


class Tensors(nn.Module):
    """A model and its optimizer, whose values tell the step."""

    def __init__(self, step: int):
        super().__init__()
        self.w = nn.Parameter(torch.full((2, 3), float(step)))

    def state(self) -> dict[str, Tensor]:
        return {"w.exp_avg": -self.w.detach()}


def save(manager: CheckpointManager, step: int, best: int = 0) -> None:
    tensors = Tensors(step)
    manager.save(at(step, best), tensors, tensors.state())


def wait_for_thread(manager: CheckpointManager) -> None:
    assert manager._thread
    manager._thread.submit(int).result()


def at(step: int, best: int = 0) -> TrainingState:
    return TrainingState(step=step, best_step=best)


def kept(folder: Path) -> list[int]:
    return [c.step for c in ckpt.valid_checkpoints(folder)]


def published(folder: Path) -> float:
    weight = load_file(folder / "model.safetensors")["w"]
    assert (weight == weight[0, 0]).all()
    return float(weight[0, 0])


# Every tenth step is averaged; a validation and a signal caused 25 and 44.
STEPS = [10, 20, 25, 30, 40, 44]


@pytest.mark.parametrize(
    ("config", "best", "left", "weight"),
    [
        ({"average_checkpoints": 3}, 0, [20, 30, 40, 44], np.mean([30, 40, 44])),
        ({"average_checkpoints": 1}, 10, [10, 30, 40, 44], 44),
        ({"average_checkpoints": 1, "final": "best"}, 25, [25, 30, 40, 44], 25),
        ({"final": "best"}, 0, [10, 20, 30, 40, 44], 44),  # not validated yet
    ],
)
def test_kept_checkpoints_and_the_final_model(
    tmp_path: Path, config: dict[str, Any], best: int, left: list[int], weight: float
) -> None:
    one = manager(tmp_path, **config)
    for step in STEPS:
        save(one, step, best if step > best else 0)
    final = one.finish(at(STEPS[-1], best))
    one.close()
    assert kept(tmp_path) == left
    assert published(tmp_path) == pytest.approx(weight)
    torch.testing.assert_close(final, load_file(tmp_path / "model.safetensors"), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("warmup", "weight"),
    [(20, np.mean([20, 30, 40, 44])), (21, np.mean([30, 40, 44])), (50, 44)],
)
def test_checkpoints_of_the_warm_up_are_not_averaged(
    tmp_path: Path, warmup: int, weight: float
) -> None:
    one = manager(tmp_path, warmup=warmup)
    for step in STEPS:
        save(one, step)
    one.finish(at(STEPS[-1]))
    one.close()
    assert published(tmp_path) == pytest.approx(weight)


def test_a_resumed_run_keeps_the_checkpoints_it_finds(tmp_path: Path) -> None:
    first = manager(tmp_path, average_checkpoints=2)
    for step in (10, 20, 30):
        save(first, step, best=10)
    first.close()
    found = ckpt.valid_checkpoints(tmp_path)
    assert [c.step for c in found] == [10, 20, 30]
    second = manager(tmp_path, found, average_checkpoints=2)
    save(second, 40, best=10)
    second.finish(at(40, best=10))
    second.close()
    assert kept(tmp_path) == [10, 30, 40]
    assert published(tmp_path) == 35


def test_a_different_average_of_a_finished_run_deletes_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "transformer_mt")
    for step in (10, 20, 30, 40):
        tensors = Tensors(step)
        ckpt.save_checkpoint(tmp_path, {"step": step}, ckpt.snapshot(tensors, tensors.state()))
    for average, mean in ((1, 40), (2, 35), (9, 25)):
        found = ckpt.valid_checkpoints(tmp_path)
        one = manager(tmp_path, found, average_checkpoints=average)
        one.finish(at(40, best=20))
        one.close()
        assert published(tmp_path) == mean
        assert one.model_steps == [10, 20, 30, 40][-average:]
        assert kept(tmp_path) == [10, 20, 30, 40]
    assert caplog.messages[-1].endswith("the average of 4 checkpoints, of updates 10 to 40")


def test_an_average_leaves_out_damaged_checkpoints(tmp_path: Path) -> None:
    first = manager(tmp_path, average_checkpoints=4)
    for step in (10, 20, 30, 40):
        save(first, step)
    first.close()
    for step in (20, 30):
        (tmp_path / f"checkpoints/step_000000{step}/model.safetensors").write_bytes(b"damaged")
    again = manager(tmp_path, ckpt.valid_checkpoints(tmp_path), average_checkpoints=4)
    again.finish(at(40))
    again.close()
    assert again.model_steps == [10, 40]
    assert published(tmp_path) == 25
    best = manager(tmp_path, ckpt.valid_checkpoints(tmp_path), final="best")
    best.finish(at(40, best=20))
    best.close()
    assert published(tmp_path) == 40


def test_checkpoints_may_be_deleted_while_a_run_continues(tmp_path: Path) -> None:
    """As to free space on a disk that is nearly full."""
    one = manager(tmp_path, average_checkpoints=3)
    for step in (10, 20, 30):
        save(one, step)
    one.wait()
    for step in (10, 20):
        shutil.rmtree(tmp_path / f"checkpoints/step_000000{step}")
    save(one, 40)
    one.finish(at(40))
    one.close()
    assert published(tmp_path) == 35


def test_the_best_checkpoint_becomes_the_model_after_its_validation(tmp_path: Path) -> None:
    one = manager(tmp_path, final="best")
    save(one, 10)
    one.record_validation(at(10, best=10), {"bleu": 3.0, "nll": 2.0})
    save(one, 20, best=10)
    one.wait()
    assert published(tmp_path) == 10
    one.record_validation(at(20, best=20), {"bleu": 4.0, "nll": 1.0})
    assert published(tmp_path) == 20
    one.close()
    found = ckpt.valid_checkpoints(tmp_path)
    assert [c.validation for c in found] == [{"bleu": 3.0, "nll": 2.0}, {"bleu": 4.0, "nll": 1.0}]


def test_training_continues_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = threading.Event()
    real = ckpt.save_file

    def slow(*args: Any) -> None:
        assert disk.wait(30)
        real(*args)

    monkeypatch.setattr(ckpt, "save_file", slow)
    one = manager(tmp_path)
    save(one, 10)  # returns
    one.check()
    assert kept(tmp_path) == []
    disk.set()
    one.wait()
    assert kept(tmp_path) == [10]
    one.close()


@pytest.mark.parametrize("then", ["save", "check", "finish"])
def test_a_failed_write_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    one = manager(tmp_path)
    save(one, 10)
    one.wait()

    def full(*_: Any) -> None:
        raise SafetensorError("I/O error: No space left")

    with monkeypatch.context() as patch:
        patch.setattr(ckpt, "save_file", full)
        save(one, 20)
        call = {
            "save": lambda: save(one, 30),
            "check": lambda: (wait_for_thread(one), one.check()),
            "finish": lambda: one.finish(at(20)),
        }[then]
        with pytest.raises(InputError, match=r"cannot write a checkpoint into .*No space left"):
            call()
    one.close()
    assert kept(tmp_path) == [10]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000010"]
