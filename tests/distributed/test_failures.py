"""Error reports and exit status of failed ranks, and which failures lead to a restart."""

import atexit
import logging
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from support.forked_ranks import fork_ranks, free_port
from support.launched_runs import TIMEOUT

from transformer_mt.config import DistributedConfig
from transformer_mt.distributed import failures, launcher
from transformer_mt.distributed.failures import is_transient, propagate_errors
from transformer_mt.distributed.world import join
from transformer_mt.errors import InputError, UsageError

CPU = torch.device("cpu")
ADVICE = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
"""Last line of torch's messages of CUDA errors."""


@pytest.mark.parametrize(
    ("name", "text", "transient"),
    [
        ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered", True),
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered", False),
        ("AcceleratorError", "CUDA error: out of memory", False),
        ("RuntimeError", "CUDA driver error: unspecified launch failure", True),
        ("RuntimeError", "Triton Error [CUDA]: device-side assert triggered", False),
        ("RuntimeError", "Triton Error [CUDA]: unspecified launch failure", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling x", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x", False),
        ("RuntimeError", "The size of tensor a must match", False),
        ("ValueError", "CUDA error: unknown error", False),
        ("LostRankError", "rank 1 of 2: lost the connection", True),
    ],
)
def test_transient_errors(name: str, text: str, transient: bool) -> None:
    assert is_transient(name, text) is transient
    assert is_transient(name, f"{text}\n{ADVICE}") is transient


def work(folder: Path, how: str) -> None:
    """Records the start of each rank; fails as ``how`` says."""
    torch.set_num_threads(1)
    with (folder / "starts").open("a") as file:
        file.write("x")
    minutes = 5 / 60 if how == "stops before the ranks are ready" else 10.0
    if how == "never ready":
        minutes = 3 / 60
        if os.environ["RANK"] == "1":
            time.sleep(10)  # longer than the others wait
            return
    if how == "input before" and os.environ["RANK"] == "1":
        raise InputError("data.tsv, line 7: invalid UTF-8")
    with join(CPU, DistributedConfig(timeout_minutes=minutes)) as world:
        world.any(False)
        starts = len((folder / "starts").read_text())
        if how == "bug everywhere":
            raise ValueError("unexpected value")
        if world.rank == 1:
            match how:
                case "input":
                    raise InputError("data.tsv, line 7: invalid UTF-8")
                case "subclass of input error":
                    raise UsageError("data.tsv, line 7: invalid UTF-8")
                case "bug":
                    raise ValueError("unexpected value")
                case "bug in a kernel":
                    raise torch.AcceleratorError(
                        f"CUDA error: device-side assert triggered\n{ADVICE}"
                    )
                case "lost GPU at first" if starts < 4:
                    raise torch.AcceleratorError(f"CUDA error: GPU is lost\n{ADVICE}")
                case "disk":
                    (folder / "no" / "such" / "file").read_text()
                case "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "killed at first" if starts < 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                case "killed after progress" if starts < 7:
                    (folder / "checkpoint").write_text(str(starts))
                    os.kill(os.getpid(), signal.SIGKILL)
                case "terminated":
                    os.kill(os.getpid(), signal.SIGTERM)
                case "terminal closed":
                    os.kill(os.getppid(), signal.SIGHUP)
                    time.sleep(0.5)
                case "exits" | "stops before the ranks are ready":
                    raise SystemExit(143)
        world.any(False)  # without end, unless the process is stopped


def launch(folder: Path, how: str, restarts: int = 0, minutes: float = 10.0) -> int:
    """Launches two ranks and returns the number of starts."""

    def progress() -> str:
        checkpoint = folder / "checkpoint"
        return checkpoint.read_text() if checkpoint.exists() else ""

    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    started = time.monotonic()
    try:
        launcher.launch(work, (folder, how), 2, restarts, progress, minutes)
    finally:
        assert time.monotonic() - started < TIMEOUT
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    return len((folder / "starts").read_text()) // 2


@pytest.fixture(autouse=True)
def _fork(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_ranks(monkeypatch)


@pytest.mark.parametrize("how", ["input", "input before", "subclass of input error"])
def test_input_error_on_one_rank_prints_one_line(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"^data\.tsv, line 7: invalid UTF-8$"):
        launch(tmp_path, how, restarts=3)
    assert len((tmp_path / "starts").read_text()) <= 2  # no restart
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["bug", "bug everywhere", "bug in a kernel"])
def test_exception_prints_one_traceback_and_its_rank(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        launch(tmp_path, how, restarts=3)
    assert stopped.value.code == 1
    assert len((tmp_path / "starts").read_text()) == 2
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "Traceback" in line] == lines[:1]
    if how == "bug in a kernel":
        assert "torch.AcceleratorError: CUDA error: device-side assert triggered" in lines
    else:
        assert lines[-2] == "ValueError: unexpected value"
    assert lines[-1].startswith("rank " if how == "bug everywhere" else "rank 1 of 2, on ")


def test_os_error_prints_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no" / "such" / "file"
    with pytest.raises(InputError, match=rf"^No such file or directory: {path}$"):
        launch(tmp_path, "disk", restarts=3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["terminated", "exits"])
def test_termination_of_one_worker_ends_all(how: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        launch(tmp_path, how, restarts=3)
    assert stopped.value.code == 143
    assert len((tmp_path / "starts").read_text()) == 2


def test_a_closed_terminal_stops_nothing_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert launch(tmp_path, "terminal closed") == 1
    finally:
        signal.signal(signal.SIGHUP, before)


def test_killed_worker_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"^worker 1 \(process \d+\) was killed by SIGKILL"):
        launch(tmp_path, "killed")
    assert capfd.readouterr().err == ""


def test_restart_after_lost_gpu(tmp_path: Path) -> None:
    assert launch(tmp_path, "lost GPU at first", restarts=1) == 2


def test_restart_after_killed_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "transformer_mt"):
        assert launch(tmp_path, "killed at first", restarts=1) == 2
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("transformer_mt")]
    assert "worker 1 (process " in line
    assert "was killed by SIGKILL" in line
    assert "restarting all 2 workers (restart 1 of 1 " in line


@pytest.mark.slow
def test_restarts_are_counted_from_the_last_checkpoint(tmp_path: Path) -> None:
    assert launch(tmp_path, "killed after progress", restarts=1) == 4
    with pytest.raises(InputError, match=r"gave up after 1 restart\(s\) without"):
        launch(tmp_path, "killed", restarts=1)


@pytest.mark.slow
def test_worker_that_stops_before_the_ranks_are_ready_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``distributed.timeout_minutes`` holds from the start, not only for collectives."""

    def stop_once(_: int) -> None:
        if os.environ["RANK"] == "1" and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    monkeypatch.setattr(launcher, "_end_with", stop_once)
    caplog.set_level(logging.WARNING, "transformer_mt")
    with pytest.raises(SystemExit):  # of the restarted workers
        launch(tmp_path, "stops before the ranks are ready", restarts=1, minutes=5 / 60)
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("transformer_mt")]
    assert "rank 0 of 2, on " in line
    assert "only 1 ranks were ready within 0:00:05" in line


# Under torchrun our launcher does not collect the reports.


def rank(folder: Path, how: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    sys.stderr = (folder / "stderr").open("a")
    atexit._clear()  # the functions of the process that this one is forked from
    try:
        with propagate_errors():
            work(folder, how)
    except InputError as error:
        print(f"mt-train: error: {error}", file=sys.stderr)
    finally:
        atexit._run_exitfuncs()  # as at the end of a program


def ranks(folder: Path, how: str) -> tuple[list[int | None], str]:
    """Exit status of each of three ranks, and their joint stderr."""
    environment = {
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
    }
    processes = [
        multiprocessing.get_context("fork").Process(
            target=rank,
            args=(folder, how, {**environment, "RANK": str(number), "LOCAL_RANK": str(number)}),
        )
        for number in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT)
    return [process.exitcode for process in processes], (folder / "stderr").read_text()


@pytest.mark.parametrize("how", ["input", "input before"])
def test_under_torchrun_input_error_prints_one_line(how: str, tmp_path: Path) -> None:
    status, printed = ranks(tmp_path, how)
    assert status == [1, 1, 1]
    assert printed == "mt-train: error: data.tsv, line 7: invalid UTF-8\n"


def test_under_torchrun_a_rank_that_is_never_ready_is_not_waited_for_without_limit(
    tmp_path: Path,
) -> None:
    status, printed = ranks(tmp_path, "never ready")
    assert status == [os.EX_TEMPFAIL, 0, os.EX_TEMPFAIL]
    (line,) = printed.splitlines()
    assert "only 2 ranks were ready within 0:00:03" in line


def test_under_torchrun_killed_rank_gives_exit_status_75(tmp_path: Path) -> None:
    status, printed = ranks(tmp_path, "killed")
    assert status == [os.EX_TEMPFAIL, -signal.SIGKILL, os.EX_TEMPFAIL]
    (line,) = printed.splitlines()
    assert "lost the connection to another rank: " in line


def test_torchrun_restarts_on_several_nodes_need_a_store_of_each_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "_store", [])
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        failures.meet(timedelta(seconds=1))
