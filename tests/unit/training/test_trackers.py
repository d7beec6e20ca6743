"""Trackers: a failure never reaches training; names and packages are checked before a run.

The package of a tracker is replaced by one that misbehaves.
"""

import sys
from pathlib import Path

import pytest
from support import fake_wandb

from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError
from transformer_mt.training.trackers import Trackers, check_installed


@pytest.mark.parametrize("method", ["init", "log", "finish"])
@pytest.mark.parametrize(
    ("error", "reason"), [(RuntimeError("server\nsays no"), "server says no"), (SystemExit(7), "7")]
)
def test_a_failure_is_one_warning_and_leaves_other_trackers_alone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: BaseException,
    reason: str,
) -> None:
    fake_wandb.install(monkeypatch, **{method: error})
    job = TrainJob(run_dir=str(tmp_path), trackers=["wandb", "tensorboard"])
    with Trackers(job) as trackers:
        for step in range(1, 3):
            trackers.log_scalars("train", step, {"loss": 1.0})
    assert caplog.messages == [f"warning: the tracker wandb is switched off: {reason}"]
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_unknown_names_and_missing_packages_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_installed(["tensorboard"])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "mlflow").mkdir()  # a folder is not a package
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(InputError, match=rf"pip install {name}$"):
            check_installed([name])
    with pytest.raises(InputError, match="trackers='wandbb' is not one of: tensorboard, "):
        TrainJob(trackers=["wandbb"])
