"""Trackers of a training run: recorded by the real packages, offline, and read by their means."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.training_runs import Running, arguments

from transformer_mt import compose, train
from transformer_mt.training.metrics_log import read_records


def trackio_losses(folder: Path) -> dict[int, float]:
    """In a process of its own, because Trackio reads the variable when it is imported."""
    code = """if True:
        import json
        from trackio.sqlite_storage import SQLiteStorage
        (project,) = SQLiteStorage.get_projects()
        (run,) = SQLiteStorage.get_runs(project)
        print(json.dumps(SQLiteStorage.get_logs(project, run)))"""
    out = subprocess.check_output([sys.executable, "-c", code], env={"TRACKIO_DIR": str(folder)})
    return {r["step"]: r["train/loss"] for r in json.loads(out) if "train/loss" in r}


def mlflow_losses(folder: Path) -> dict[int, float]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("transformer_mt")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    return {m.step: m.value for m in client.get_metric_history(run.info.run_id, "train/loss")}


@pytest.mark.parametrize(
    ("name", "read"), [("trackio", trackio_losses), ("wandb", None), ("mlflow", mlflow_losses)]
)
def test_a_killed_and_resumed_run_is_one_entry(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    read: Callable[[Path], dict[int, float]] | None,
) -> None:
    if find_spec(name) is None:  # not imported here: Trackio then reads its folder's variable
        pytest.skip(f"{name} is not installed")
    if name == "mlflow":
        pytest.importorskip("sqlalchemy", reason="mlflow-skinny has no local store")
    run_dir = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    argv = arguments(corpus, run_dir, f"trackers=[{name}]", "train.log_every=1")
    killed = Running("train", argv, tmp_path / "killed", WANDB_MODE="offline")
    killed.wait_for((run_dir / "checkpoints/step_00000016").exists)
    killed.send(signal.SIGKILL)
    killed.wait()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(run_dir / "trackers" / "trackio"))  # until the end only
    train(compose(argv))
    assert "switched off" not in (run_dir / "train.log").read_text()
    assert capfd.readouterr().out == ""
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"run", "killed"}
    assert any((run_dir / "trackers" / name).iterdir())
    if read is None:  # test_wandb_tracker.py tests what W&B is given
        return
    recorded = read(run_dir / "trackers" / name)
    expected = {r["step"]: r["loss"] for r in read_records(run_dir) if r["split"] == "train"}
    # The kill may have lost records, and updates after the last checkpoint are repeated.
    assert recorded.keys() >= set(range(17, 41))
    assert recorded.items() <= expected.items()
