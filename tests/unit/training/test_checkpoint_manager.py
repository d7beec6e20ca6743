"""Checkpoints of a run: background writing, pruning, the final model, failed writes."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.model_folders import JOB
from support.tiny_trainer import kept, weights

from transformer_mt import checkpoint as ckpt
from transformer_mt.config import TrainConfig
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.run_layout import CHECKPOINT_OPTIMIZER, WEIGHTS
from transformer_mt.training.checkpoint_manager import CheckpointManager
from transformer_mt.training.progress import TrainingState


def manager(folder: Path, warmup: int = 1, **config: Any) -> CheckpointManager:
    """As at the start of a run in this folder, or when it is resumed."""
    schedule = replace(JOB.schedule, warmup_steps=warmup)
    job = replace(JOB, run_dir=str(folder), train=TrainConfig(**config), schedule=schedule)
    return CheckpointManager(job, World(torch.device("cpu")))


def tensors(step: int) -> ckpt.Tensors:
    """Of a model and its optimizer, whose values tell the step."""
    w = torch.full((2, 3), float(step))
    return {WEIGHTS: {"w": w}, CHECKPOINT_OPTIMIZER: {"w.exp_avg": -w}}


def at(step: int, best: int = 0) -> TrainingState:
    """A state of a run that averages every tenth step."""
    number, rest = divmod(step, 10)
    return TrainingState(step=step, best_step=best, is_regular=rest == 0, num_regular=number)


def save(manager: CheckpointManager, *steps: int, best: int = 0) -> None:
    for step in steps:
        manager.save(at(step, best if step > best else 0), tensors(step))


def finished(
    folder: Path, steps: Iterable[int] = (), last: int = 40, best: int = 0, **config: Any
) -> CheckpointManager:
    """A run, perhaps a resumed one, that saves these checkpoints and ends."""
    one = manager(folder, **config)
    save(one, *steps, best=best)
    final = one.finish(at(last, best))
    one.close()
    torch.testing.assert_close(final, weights(folder), rtol=0, atol=0)
    return one


def published(folder: Path) -> float:
    weight = weights(folder)["w"]
    assert (weight == weight[0, 0]).all()
    return float(weight[0, 0])


# Every tenth step is averaged; a validation and a signal caused 25 and 44.
STEPS = [10, 20, 25, 30, 40, 44]


@pytest.mark.parametrize(
    ("config", "best", "left", "weight"),
    [
        ({"average_checkpoints": 3}, 0, [20, 30, 40, 44], np.mean([30, 40, 44])),
        ({"average_checkpoints": 9}, 0, [10, 20, 30, 40, 44], np.mean([10, 20, 30, 40, 44])),
        ({"average_checkpoints": 1}, 10, [10, 30, 40, 44], 44),
        ({"average_checkpoints": 1, "final": "best"}, 25, [25, 30, 40, 44], 25),
        ({"final": "best"}, 0, [10, 20, 30, 40, 44], 44),  # not validated yet
        # Checkpoints of the warm-up are not averaged.
        ({"warmup": 20}, 0, [10, 20, 30, 40, 44], np.mean([20, 30, 40, 44])),
        ({"warmup": 21}, 0, [10, 20, 30, 40, 44], np.mean([30, 40, 44])),
        ({"warmup": 50}, 0, [10, 20, 30, 40, 44], 44),
    ],
)
def test_kept_checkpoints_and_the_final_model(
    tmp_path: Path, config: dict[str, Any], best: int, left: list[int], weight: float
) -> None:
    finished(tmp_path, STEPS, 44, best, **config)
    assert kept(tmp_path) == left
    assert published(tmp_path) == pytest.approx(weight)


def test_a_different_average_of_a_finished_run_deletes_no_checkpoint(tmp_path: Path) -> None:
    steps = [10, 20, 30, 40]
    finished(tmp_path, steps, average_checkpoints=4)
    for average, mean in ((1, 40), (2, 35), (9, 25)):
        one = finished(tmp_path, best=20, average_checkpoints=average)
        assert published(tmp_path) == mean
        assert one.model_steps == steps[-average:]
        assert kept(tmp_path) == steps


def test_an_old_best_checkpoint_is_not_averaged(tmp_path: Path) -> None:
    finished(tmp_path, range(10, 110, 10), 100, best=10, average_checkpoints=3)
    assert kept(tmp_path) == [10, 80, 90, 100]
    assert finished(tmp_path, (), 100, best=10, average_checkpoints=9).model_steps == [80, 90, 100]


def test_an_average_leaves_out_damaged_checkpoints(tmp_path: Path) -> None:
    finished(tmp_path, (10, 20, 30, 40), average_checkpoints=4)
    for step in (20, 30):
        (tmp_path / f"checkpoints/step_000000{step}/model.safetensors").write_bytes(b"damaged")
    assert finished(tmp_path, average_checkpoints=4).model_steps == [10, 40]
    assert published(tmp_path) == 25
    finished(tmp_path, best=20, final="best")
    assert published(tmp_path) == 40


def test_checkpoints_may_be_deleted_while_a_run_continues(tmp_path: Path) -> None:
    """As to free space on a disk that is nearly full."""
    one = manager(tmp_path, average_checkpoints=3)
    save(one, 10, 20, 30)
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
    one.record_validation(replace(at(10, best=10), metrics={"bleu": 3.0, "nll": 2.0}))
    save(one, 20, best=10)
    one.wait()
    assert published(tmp_path) == 10
    one.record_validation(replace(at(20, best=20), metrics={"bleu": 4.0, "nll": 1.0}))
    assert published(tmp_path) == 20
    one.close()
    found = ckpt.valid_checkpoints(tmp_path)
    assert [c.state["metrics"] for c in found] == [
        {"bleu": 3.0, "nll": 2.0},
        {"bleu": 4.0, "nll": 1.0},
    ]


def test_a_model_without_a_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="a model but no intact checkpoint to resume from"):
        manager(tmp_path).restore(tensors(0))


def test_training_continues_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, real = threading.Event(), ckpt.save

    def slow(*args: Any) -> bytes:
        assert disk.wait(30)
        return bytes(real(*args))

    monkeypatch.setattr(ckpt, "save", slow)
    one = manager(tmp_path)
    save(one, 10)  # returns
    one.check()
    assert kept(tmp_path) == []
    disk.set()
    one.wait()
    assert kept(tmp_path) == [10]
    one.close()


def check(manager: CheckpointManager) -> None:
    """As after an update, at a time when the checkpoint is written."""
    assert manager._thread
    manager._thread.submit(int).result()
    manager.check()


@pytest.mark.parametrize("then", [lambda one: save(one, 30), check, lambda one: one.finish(at(20))])
def test_a_failed_write_is_raised_in_the_main_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Callable[[CheckpointManager], None]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = manager(tmp_path)
    save(one, 10)
    one.wait()
    monkeypatch.setattr(ckpt, "save", full)
    save(one, 20)
    with pytest.raises(OSError, match=r"No space left .*step_00000020"):
        then(one)
    one.close()
    assert kept(tmp_path) == [10]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000010"]
