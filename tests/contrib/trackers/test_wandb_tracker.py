"""Weights & Biases: everything reaches the package, and a run has one entry."""

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
    wandb = fake_wandb.install(monkeypatch)
    for step, finished in ((1, False), (2, True)):
        with suppress(SystemExit), tracked(tmp_path) as trackers:
            trackers.log_scalars("train", step, {"loss": float(step)})
            if not finished:
                raise SystemExit(143)
    run = wandb.init.return_value
    logged = [call.args[0] for call in run.log.call_args_list]
    assert logged == [{"train/loss": float(step), "update": step} for step in (1, 2)]
    assert [call.kwargs["exit_code"] for call in run.finish.call_args_list] == [1, 0]
    (tmp_path / "another run").mkdir()
    with tracked(tmp_path / "another run"):
        pass
    first, again, other = (call.kwargs["id"] for call in wandb.init.call_args_list)
    assert first == again != other
    assert caplog.messages == []


def test_everything_reaches_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_wandb.install(monkeypatch).init.return_value
    with tracked(tmp_path) as trackers:
        trackers.log_scalars("valid", 5, {"bleu": 1.5, "ppl": math.nan, "loss": math.inf})
        trackers.log_samples(5, [("ä | \n", "", "c")])
        trackers.log_scalars("test", 9, {"BLEU": 2.5})
    settings = run.config.update.call_args.args[0]
    assert (settings["train.seed"], settings["trackers"]) == (TrainJob().train.seed, "['wandb']")
    assert [call.args[0] for call in run.log.call_args_list] == [
        {"valid/bleu": 1.5, "update": 5},
        {"valid/translations": {"table": [["ä | \n", "", "c"]]}, "update": 5},
        {"test/BLEU": 2.5, "update": 9},
    ]
