"""Trackers: a failure or a hang never reaches training, and every record is logged once.

The package of a tracker is replaced by one that misbehaves, in the same separate process.
"""

import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from transformer_mt.config import TrainJob
from transformer_mt.config.train import TRACKERS as NAMES
from transformer_mt.errors import InputError
from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.trackers import TRACKERS, Trackers, background, check_installed
from transformer_mt.training.trackers.tracker import TrackedRun

FAKE = '''
"""A wandb that writes what it is given to a file, and misbehaves as FAKE says."""
import json, os, sys, time
from pathlib import Path

print("noise on standard output")
FAKE, LOG = os.environ["FAKE"], Path(os.environ["FAKE_LOG"])

class errors:
    class UsageError(Exception): pass

def Settings(**_): pass
def Table(columns, data): return {"table": data}
def Image(image, caption): return {"size": image.size, "caption": caption}

def misbehave(where):
    if FAKE == f"{where} raises":
        raise RuntimeError("the server\\nsays no")
    if FAKE == f"{where} hangs":
        time.sleep(1000)
    if FAKE == f"{where} exits":
        os._exit(7)
    if FAKE == f"{where} asks":
        input("password: ")

def write(**line):
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\\n")

class Run:
    def __init__(self, id, name):
        self.offline, self.dir, self.url = False, "/tmp/run/files", "http://localhost/run"
        self.config = self
        write(init=id, name=name)
    def define_metric(self, *_, **__): pass
    def update(self, settings, **_): write(settings=settings)
    def log(self, values):
        misbehave("log")
        write(log=values)
    def finish(self, exit_code):
        misbehave("finish")
        write(finish=exit_code)

def init(*, id, name, **_):
    misbehave("init")
    return Run(id, name)
'''


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Installs the fake wandb with a behaviour; returns the file that it writes."""
    package = tmp_path / "packages" / "wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "logged"))

    def behave(how: str = "") -> Path:
        monkeypatch.setenv("FAKE", how)
        return tmp_path / "logged"

    return behave


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("transformer_mt"), "handlers", [])
    caplog.set_level(logging.INFO, logger="transformer_mt")
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def logged(path: Path, key: str = "log") -> list[Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def tracked(folder: Path, last_step: int = 0) -> Trackers:
    return Trackers(["wandb"], TrackedRun(folder, {"train.seed": 1}, last_step))


@pytest.mark.parametrize(
    ("where", "how"),
    [("init", "asks"), ("init", "raises"), ("log", "exits"), ("log", "hangs"), ("finish", "hangs")],
)
def test_a_failure_is_one_warning(
    tmp_path: Path,
    fake: Callable[[str], Path],
    warnings: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    where: str,
    how: str,
) -> None:
    fake(f"{where} {how}")
    monkeypatch.setattr(background, "_CALL_SECONDS", 1.0)
    trackers = tracked(tmp_path)
    for step in range(1, 3):
        start = time.perf_counter()
        trackers.log_scalars("train", step, {"loss": 1.0})
        assert time.perf_counter() - start < 1
    trackers.close()
    (warning,) = warnings()
    assert "wandb" in warning
    assert "\n" not in warning
    reason = {"raises": "server says no", "hangs": "1 s", "exits": "status 7", "asks": "EOF"}
    assert reason[how] in warning
    assert capfd.readouterr().out == ""


def test_a_process_that_does_not_end_is_stopped(
    tmp_path: Path, fake: Callable[[str], Path], warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("log hangs")
    monkeypatch.setattr(background, "_CLOSE_SECONDS", 0.5)
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    process = trackers._open["wandb"]._process
    trackers.close()
    assert process.wait() == -9
    (warning,) = warnings()
    assert "wandb" in warning


def test_a_process_that_accepts_nothing_is_stopped_and_never_waited_for(
    tmp_path: Path, fake: Callable[[str], Path], warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("init hangs")
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
    tmp_path: Path, fake: Callable[[str], Path], warnings: Any
) -> None:
    fake("init raises")
    trackers = Trackers(["wandb", "tensorboard"], TrackedRun(tmp_path, {}, 0))
    trackers.log_scalars("train", 1, {"loss": 1.0})
    trackers.close()
    assert len(warnings()) == 1
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_a_resumed_run_continues_its_entry_without_gaps_or_repetitions(
    tmp_path: Path, fake: Callable[[str], Path], warnings: Any
) -> None:
    path = fake()
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
    assert [values["update"] for values in logged(path) if "train/loss" in values] == [
        *range(1, 10)
    ]
    assert [values["train/loss"] for values in logged(path) if "train/loss" in values] == [
        float(step) for step in range(1, 10)
    ]
    assert len([values for values in logged(path) if "valid/translations" in values]) == 1
    entries = logged(path, "init")
    assert len(entries) == 3
    assert len(set(entries)) == 1
    assert logged(path, "finish") == [1, 0, 1]
    assert warnings() == []


def test_what_was_logged_before_a_kill_is_recorded(
    tmp_path: Path, fake: Callable[[str], Path]
) -> None:
    """The process goes on until it has read everything; here, its input ends in mid-line."""
    path = fake()
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    tracker = trackers._open["wandb"]
    tracker._queue.put(b'{"method": "log_sc')
    tracker._queue.put(None)
    assert tracker._process.wait(60) == 0
    assert logged(path) == [{"train/loss": 1.0, "update": 1}]
    assert logged(path, "finish") == [1]


def test_everything_reaches_the_package(tmp_path: Path, fake: Callable[[str], Path]) -> None:
    path = fake()
    trackers = tracked(tmp_path)
    trackers.log_scalars("valid", 5, {"bleu": 1.5, "ppl": math.nan, "loss": math.inf})
    trackers.log_samples(5, [("ä | \n", "", "c")])
    trackers.log_attention(5, {"cross": Image.new("L", (30, 20))}, "caption")
    trackers.log_final_scores(9, {"BLEU": 2.5})
    trackers.close()
    assert logged(path, "settings") == [{"train.seed": 1}]
    assert logged(path) == [
        {"valid/bleu": 1.5, "update": 5},
        {"valid/translations": {"table": [["ä | \n", "", "c"]]}, "update": 5},
        {"valid/attention_cross": {"size": [30, 20], "caption": "caption"}, "update": 5},
        {"test/BLEU": 2.5, "update": 9},
    ]


def test_a_damaged_state_starts_a_new_entry(
    tmp_path: Path, fake: Callable[[str], Path], warnings: Any
) -> None:
    path = fake()
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "wandb.json").write_text('{"entry": 3, "recorded": {"train": "x"}}')
    trackers = tracked(tmp_path)
    trackers.log_scalars("train", 1, {"loss": 1.0})
    trackers.close()
    assert warnings() == []
    assert len(logged(path)) == 1


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
