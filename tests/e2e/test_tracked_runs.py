"""Trackers of a training run: recorded by the real packages, offline, and read by their means."""

import json
import signal
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support import fake_wandb
from support.training_runs import Running, arguments

from transformer_mt import compose, train
from transformer_mt.training.metrics_log import TIME_KEYS, read_records

Curves = dict[str, list[tuple[int, float]]]


def test_training_is_the_same_with_a_tracker_that_fails(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wandb.install(tmp_path, monkeypatch, "log raises")
    for name, setting in (("with", "[wandb]"), ("without", "[]")):
        train(compose(arguments(corpus, tmp_path / name, f"trackers={setting}")))
    for name in ("model.safetensors", "test.json"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    log = (tmp_path / "with" / "train.log").read_text()
    assert log.count("warning: the tracker wandb") == 1


def trackio_curves(folder: Path) -> Curves:
    """In a process of its own, because Trackio reads the variable when it is imported."""
    code = """if True:
        import json
        from trackio.sqlite_storage import SQLiteStorage
        (project,) = SQLiteStorage.get_projects()
        (run,) = SQLiteStorage.get_runs(project)
        assert SQLiteStorage.get_run_config(project, run)["train.seed"] == 1
        print(json.dumps(SQLiteStorage.get_logs(project, run)))"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TRACKIO_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    curves = defaultdict(list)
    for record in json.loads(done.stdout):
        for key, value in record.items():
            curves[key].append((record["step"], value))
    assert curves["valid/translations"][-1][1]["_value"][0].keys() == {
        "source", "reference", "translation"
    }  # fmt: skip
    return curves


def mlflow_curves(folder: Path) -> Curves:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("transformer_mt")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["train.seed"] == "1"
    paths = [item.path for item in client.list_artifacts(run.info.run_id, "translations")]
    assert "translations/00000040.csv" in paths
    return {
        key: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, key))
        for key in run.data.metrics
    }


def wandb_curves(folder: Path) -> Curves:
    from wandb.proto.wandb_internal_pb2 import Record

    curves, runs, exits, tables = defaultdict(list), set(), [], set()
    for path in sorted(folder.rglob("*.wandb")):
        for content in log_records(path.read_bytes()):
            record = Record.FromString(content)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                runs.add((record.run.run_id, record.run.project))
            elif kind == "exit":
                exits.append(record.exit.exit_code)
            elif kind == "history":
                items = record.history.item
                row = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}
                for key, value in row.items():
                    curves[key].append((row["update"], value))
                tables |= {value for key, value in row.items() if key.endswith("._type")}
    assert len(runs) == 1
    assert exits[-1] == 0  # the one that was killed may have none
    assert tables == {"table-file"}
    return curves


def log_records(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, which begins with a header of its own."""
    position, parts = 7, b""
    while position + 7 <= len(data):
        if (rest := 32768 - position % 32768) < 7:
            position += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield parts
            parts = b""


@pytest.mark.parametrize(
    ("name", "read"),
    [("trackio", trackio_curves), ("wandb", wandb_curves), ("mlflow", mlflow_curves)],
)
def test_a_killed_and_resumed_run_is_one_entry(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    read: Callable[[Path], Any],
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
    curves = read(run_dir / "trackers" / name)
    records = read_records(run_dir)
    for key in ("train/loss", "train/lr", "train/tokens_per_second", "valid/bleu", "valid/chrf"):
        split, metric = key.split("/")
        expected = {r["step"]: r[metric] for r in records if r["split"] == split}
        assert len(expected) == {"train": 40, "valid": 2}[split]
        # The kill may have lost records, and updates after the last checkpoint are repeated.
        recorded = dict(curves[key])
        assert recorded.keys() >= {step for step in expected if step > 16}
        assert recorded.keys() <= expected.keys()
        if metric not in TIME_KEYS:  # those of updates that were repeated differ
            assert recorded.items() <= expected.items()
    test = {item["name"]: item["score"] for item in json.loads((run_dir / "test.json").read_text())}
    ((step, score),) = curves["test/chrF2"]
    assert step == 40
    assert score == pytest.approx(test["chrF2"], abs=1e-3)
