"""torchrun in the place of mt-train: what its workers get, how they end, and what is reported."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from support.errors import input_error

from transformer_mt.config import DistributedConfig, TrainJob
from transformer_mt.distributed import LAUNCHER
from transformer_mt.distributed.torchrun import torchrun
from transformer_mt.distributed.world import join
from transformer_mt.jobs import train

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torchrun changes the environment and the handlers of signals of its process."""
    for name in (LAUNCHER, "OMP_NUM_THREADS", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"):
        monkeypatch.setenv(name, "1")
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def run(folder: Path, program: str) -> None:
    """Runs a program in two workers; it knows its rank, and the process id of torchrun."""
    path = folder / "worker.py"
    path.write_text(
        "import os, signal, sys, time\n"
        "rank, torchrun = int(os.environ['RANK']), os.getppid()\n"
        f"{program}\n"
    )
    torchrun([str(path), str(folder), "a=b c"], 2)


def test_workers_get_their_arguments_rank_and_threads(tmp_path: Path) -> None:
    names = ["WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS"]
    program = f"values = [sys.argv[2], *(os.environ[name] for name in {names})]\n"
    program += "open(f'{sys.argv[1]}/{rank}', 'w').write(' '.join(values))"
    run(tmp_path, program)
    assert [(tmp_path / name).read_text() for name in "01"] == ["a=b c 2 0 1", "a=b c 2 1 1"]


def test_the_threads_of_the_ranks_end_with_their_group(tmp_path: Path) -> None:
    """A thread that is left over can abort a process at its exit, when the run is done."""
    program = (
        "import gc, glob, torch\n"
        "from transformer_mt.distributed.world import join\n"
        "with join(torch.device('cpu')) as world:\n"
        "    world.data_parallel(torch.nn.Linear(2, 1))(torch.ones(3, 2)).sum().backward()\n"
        "    gc.collect()\n"
        "    before = len(glob.glob('/proc/self/task/*'))\n"
        "names = [open(path).read() for path in glob.glob('/proc/self/task/*/comm')]\n"
        "left = [name for name in names if 'gloo' in name]\n"
        "open(f'{sys.argv[1]}/{rank}', 'w').write(f'{before - len(names) > 0} {left}')"
    )
    run(tmp_path, program)
    assert [(tmp_path / name).read_text() for name in "01"] == ["True []"] * 2


def test_a_rank_whose_launcher_was_killed_does_not_wait_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(LAUNCHER, str(os.getpid()))  # not the parent of this process
    with input_error("the process that started this rank has ended"), join(torch.device("cpu")):
        pass


def test_a_killed_worker_ends_all(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)")
    assert stopped.value.code == 1
    assert "Traceback (most recent call last)" not in capfd.readouterr().err


def test_a_closed_terminal_stops_nothing_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run(tmp_path, "if rank == 0: os.kill(torchrun, signal.SIGHUP)")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_train_in_python_is_one_process_unless_torchrun_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = TrainJob(distributed=DistributedConfig(processes=2))
    with input_error("distributed.processes is for mt-train: start a script with torchrun"):
        train.train(job)
    assert train.num_processes(job) == 2
    assert train.num_processes(replace(job, stage="prepare")) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train.num_processes(job) == 1


def test_the_error_of_a_rank_is_recorded_for_the_report_of_torchrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "error.json"
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(report))
    monkeypatch.setattr("faulthandler.enable", lambda **_: None)
    monkeypatch.setattr(train, "_prepared", lambda job: nullcontext((job, None, False)))
    monkeypatch.setattr(train, "warn_about_gpu", Mock())
    monkeypatch.setattr(train, "pick_device", Mock(side_effect=ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        train.train(TrainJob())
    assert json.loads(report.read_text())["message"]["message"] == "ValueError: a bug"
