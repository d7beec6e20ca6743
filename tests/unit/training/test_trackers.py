"""Trackers: a failure or a hang never reaches training, and every record is logged once.

The package of a tracker is replaced by one that misbehaves.
"""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support import fake_wandb

from transformer_mt.config import TrainJob
from transformer_mt.config.train import TRACKERS as NAMES
from transformer_mt.errors import InputError
from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.trackers import TRACKERS, Trackers, background, check_installed
from transformer_mt.training.trackers.tracker import TrackedRun


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_CLOSE_SECONDS", 120.0)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "handlers", [])
    caplog.set_level(logging.INFO, logger="transformer_mt")
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def tracked(folder: Path, steps_done: int = 0) -> Trackers:
    return Trackers(["wandb"], TrackedRun(folder, {"train.seed": 1}, steps_done))


@pytest.mark.parametrize(
    ("where", "how"),
    [("init", "asks"), ("init", "raises"), ("log", "exits"), ("log", "hangs"), ("finish", "hangs")],
)
def test_a_failure_is_one_warning(
    tmp_path: Path,
    warnings: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    where: str,
    how: str,
) -> None:
    fake_wandb.install(tmp_path, monkeypatch, f"{where} {how}")
    if how == "hangs":
        monkeypatch.setattr(background, "_CALL_SECONDS", 1.0)
    trackers = tracked(tmp_path)
    for step in range(1, 3):
        trackers.log_scalars("train", step, {"loss": 1.0})
    trackers.close()
    (warning,) = warnings()
    assert "wandb" in warning
    assert "\n" not in warning
    reason = {"raises": "server says no", "hangs": "1 s", "exits": "status 7", "asks": "EOF"}
    assert reason[how] in warning
    assert capfd.readouterr().out == ""


def test_a_process_that_does_not_end_is_stopped(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wandb.install(tmp_path, monkeypatch, "log hangs")
    monkeypatch.setattr(background, "_CLOSE_SECONDS", 0.5)
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    process = trackers._open["wandb"]._process
    trackers.close()
    assert process.wait() == -9
    (warning,) = warnings()
    assert "wandb" in warning


def test_a_process_that_accepts_nothing_is_stopped_and_never_waited_for(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wandb.install(tmp_path, monkeypatch, "init hangs")
    monkeypatch.setattr(background, "_MAX_QUEUED", 4)
    trackers = tracked(tmp_path)
    process = trackers._open["wandb"]._process
    long = {str(i): float(i) for i in range(10_000)}  # more than a pipe holds
    for step in range(1, 9):
        trackers.log_scalars("train", step, long)
    assert process.wait() == -9
    trackers.close()
    (warning,) = warnings()
    assert "4 records" in warning


def test_one_that_fails_leaves_the_others_alone(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wandb.install(tmp_path, monkeypatch, "init raises")
    trackers = Trackers(["wandb", "tensorboard"], TrackedRun(tmp_path, {}, 0))
    trackers.log_scalars("train", 1, {"loss": 1.0})
    trackers.close()
    assert len(warnings()) == 1
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_a_resumed_run_continues_its_entry_without_gaps_or_repetitions(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_wandb.install(tmp_path, monkeypatch)
    metrics = MetricsLog(tmp_path, 0)

    def record(trackers: Trackers, *steps: int) -> None:
        for step in steps:
            metrics.append("train", step, {"loss": float(step)})
            trackers.log_scalars("train", step, {"loss": float(step)})

    first = tracked(tmp_path)
    record(first, 1, 2, 3, 4)
    first.log_samples(4, [("a", "b", "c")])
    first.close()
    record(Trackers(), 5, 6)  # a run without the tracker
    again = tracked(tmp_path, 6)
    again.log_samples(4, [("a", "b", "c")])
    record(again, 7, 8)
    again.finished = True
    again.close()
    killed = tracked(tmp_path, 6)  # its last checkpoint was older than its last record
    record(killed, 7, 8, 9)
    killed.close()
    values = fake_wandb.logged(path)
    curve = [(v["update"], v["train/loss"]) for v in values if "train/loss" in v]
    assert curve == [(step, float(step)) for step in range(1, 10)]
    assert len([v for v in values if "valid/translations" in v]) == 1
    entries = fake_wandb.logged(path, "init")
    assert len(entries) == 3
    assert len(set(entries)) == 1
    assert fake_wandb.logged(path, "finish") == [1, 0, 1]
    assert warnings() == []


def test_what_was_logged_before_a_kill_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process goes on until it has read everything; here, its input ends in mid-line."""
    path = fake_wandb.install(tmp_path, monkeypatch)
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    tracker = trackers._open["wandb"]
    tracker._queue.put(b'{"method": "log_sc')
    tracker._queue.put(None)
    assert tracker._process.wait(60) == 0
    assert fake_wandb.logged(path) == [{"train/loss": 1.0, "update": 1}]
    assert fake_wandb.logged(path, "finish") == [1]


def test_everything_reaches_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_wandb.install(tmp_path, monkeypatch)
    trackers = tracked(tmp_path)
    trackers.log_scalars("valid", 5, {"bleu": 1.5, "ppl": math.nan, "loss": math.inf})
    trackers.log_samples(5, [("ä | \n", "", "c")])
    trackers.log_attention(5, {"cross": Image.new("L", (30, 20))}, "caption")
    trackers.log_final_scores(9, {"BLEU": 2.5})
    trackers.close()
    assert fake_wandb.logged(path, "settings") == [{"train.seed": 1}]
    assert fake_wandb.logged(path) == [
        {"valid/bleu": 1.5, "update": 5},
        {"valid/translations": {"table": [["ä | \n", "", "c"]]}, "update": 5},
        {"valid/attention_cross": {"size": [30, 20], "caption": "caption"}, "update": 5},
        {"test/BLEU": 2.5, "update": 9},
    ]


def test_a_damaged_state_starts_a_new_entry(
    tmp_path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_wandb.install(tmp_path, monkeypatch)
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "wandb.json").write_text('{"entry": 3, "recorded": {"train": "x"}}')
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    trackers.close()
    assert warnings() == []
    assert len(fake_wandb.logged(path)) == 1


def test_a_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    check_installed(["tensorboard"])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "mlflow").mkdir()  # a folder is not a package
    for name in ("wandb", "mlflow"):
        with pytest.raises(InputError, match=rf"pip install 'transformer-mt\[{name}\]'"):
            check_installed([name])


def test_names_are_checked() -> None:
    assert tuple(TRACKERS) == NAMES
    assert TrainJob(trackers=list(NAMES)).trackers == list(NAMES)
    for wrong in (["wandbb"], ["wandb", "wandb"]):
        with pytest.raises(InputError, match="trackers"):
            TrainJob(trackers=wrong)
