"""Weights & Biases: everything reaches the package, and a run has one entry.

The package is replaced by one that writes what it is given to a file.
"""

import math
from contextlib import suppress
from pathlib import Path

import pytest
from support import fake_wandb

from transformer_mt.config import TrainJob
from transformer_mt.training.trackers import Trackers


def tracked(folder: Path) -> Trackers:
    return Trackers(TrainJob(run_dir=str(folder), trackers=["wandb"]))


def test_a_resumed_run_continues_its_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_wandb.install(tmp_path, monkeypatch)
    for steps, finished in ((range(1, 3), False), (range(3, 5), True)):
        with suppress(SystemExit), tracked(tmp_path) as trackers:
            for step in steps:
                trackers.log_scalars("train", step, {"loss": float(step)})
            if not finished:
                raise SystemExit(143)
    curve = [(v["update"], v["train/loss"]) for v in fake_wandb.logged(path)]
    assert curve == [(step, float(step)) for step in range(1, 5)]
    assert len(set(fake_wandb.logged(path, "init"))) == 1
    assert fake_wandb.logged(path, "finish") == [1, 0]
    (tmp_path / "another run").mkdir()
    with tracked(tmp_path / "another run"):
        pass
    assert len(set(fake_wandb.logged(path, "init"))) == 2
    assert caplog.messages == []


def test_everything_reaches_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_wandb.install(tmp_path, monkeypatch)
    with tracked(tmp_path) as trackers:
        trackers.log_scalars("valid", 5, {"bleu": 1.5, "ppl": math.nan, "loss": math.inf})
        trackers.log_samples(5, [("ä | \n", "", "c")])
        trackers.log_scalars("test", 9, {"BLEU": 2.5})
    (settings,) = fake_wandb.logged(path, "settings")
    assert (settings["train.seed"], settings["trackers"]) == (TrainJob().train.seed, "['wandb']")
    scalars, samples, test = fake_wandb.logged(path)
    assert scalars == {"valid/bleu": 1.5, "update": 5}
    assert samples == {"valid/translations": {"table": [["ä | \n", "", "c"]]}, "update": 5}
    assert test == {"test/BLEU": 2.5, "update": 9}
