"""Error reports and exit status of failed ranks, and which failures lead to a restart."""

import atexit
import logging
import multiprocessing
import os
import re
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from support.forked_ranks import fork_ranks, rank_environments
from support.training_runs import TIMEOUT

from transformer_mt.config import DistributedConfig
from transformer_mt.distributed import failures, launcher
from transformer_mt.distributed.failures import is_transient, propagate_errors
from transformer_mt.distributed.world import join
from transformer_mt.errors import InputError, UsageError

CPU = torch.device("cpu")
BAD_INPUT = "data.tsv, line 7: invalid UTF-8"
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
        ("AcceleratorError", "CUDA error: no kernel image is available for execution", False),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling x", False),
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
    if how == "never ready" and os.environ["RANK"] == "1":
        time.sleep(5)  # longer than the others wait
        return
    if how == "input before" and os.environ["RANK"] == "1":
        raise InputError(BAD_INPUT)
    minutes = 1 / 60 if how == "never ready" else 10.0
    with join(CPU, DistributedConfig(timeout_minutes=minutes)) as world:
        world.any(False)
        starts = len((folder / "starts").read_text())
        if how == "bug everywhere":
            raise ValueError("unexpected value")
        if world.rank == 1:
            match how:
                case "input":
                    raise InputError(BAD_INPUT)
                case "subclass of input error":
                    raise UsageError(BAD_INPUT)
                case "bug":
                    raise ValueError("unexpected value")
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
                case "exits":
                    raise SystemExit(143)
        world.any(False)  # without end, unless the process is stopped


def launch(folder: Path, how: str, restarts: int = 0) -> int:
    """Launches two ranks and returns the number of starts."""

    def progress() -> str:
        checkpoint = folder / "checkpoint"
        return checkpoint.read_text() if checkpoint.exists() else ""

    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    started = time.monotonic()
    try:
        launcher.launch(work, (folder, how), 2, restarts, progress)
    finally:
        assert time.monotonic() - started < TIMEOUT
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    return len((folder / "starts").read_text()) // 2


@pytest.fixture(autouse=True)
def _fork(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_ranks(monkeypatch)


@pytest.mark.parametrize(
    ("how", "line", "restarts"),
    [
        ("input", f"^{BAD_INPUT}$", 3),
        ("input before", f"^{BAD_INPUT}$", 3),
        ("subclass of input error", f"^{BAD_INPUT}$", 3),
        ("disk", "^No such file or directory: {folder}/no/such/file$", 3),
        ("killed", r"^worker 1 \(process \d+\) was killed by SIGKILL", 0),
    ],
)
def test_failure_of_one_rank_is_reported_in_one_line_without_a_restart(
    how: str, line: str, restarts: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=line.replace("{folder}", str(tmp_path))):
        launch(tmp_path, how, restarts)
    assert len((tmp_path / "starts").read_text()) <= 2
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["bug", "bug everywhere"])
def test_exception_prints_one_traceback_and_its_rank(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        launch(tmp_path, how, restarts=3)
    assert (stopped.value.code, len((tmp_path / "starts").read_text())) == (1, 2)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "Traceback" in line] == lines[:1]
    assert lines[-2] == "ValueError: unexpected value"
    assert lines[-1].startswith("rank " if how == "bug everywhere" else "rank 1 of 2, on ")


@pytest.mark.parametrize("how", ["terminated", "exits"])
def test_termination_of_one_worker_ends_all(how: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        launch(tmp_path, how, restarts=3)
    assert (stopped.value.code, len((tmp_path / "starts").read_text())) == (143, 2)


def test_a_closed_terminal_stops_nothing_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert launch(tmp_path, "terminal closed") == 1
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("lost GPU at first", "CUDA error: GPU is lost"),
        ("killed at first", r"worker 1 \(process \d+\) was killed by SIGKILL"),
    ],
)
def test_restart_after_a_transient_failure(
    how: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "transformer_mt"):
        assert launch(tmp_path, how, restarts=1) == 2
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("transformer_mt")]
    assert re.search(rf"{what}.*; restarting all 2 workers \(restart 1 of 1 ", line)


@pytest.mark.slow
def test_restarts_are_counted_from_the_last_checkpoint(tmp_path: Path) -> None:
    assert launch(tmp_path, "killed after progress", restarts=1) == 4
    with pytest.raises(InputError, match=r"gave up after 1 restart\(s\) without"):
        launch(tmp_path, "killed", restarts=1)


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


@pytest.mark.parametrize(
    ("how", "status", "line"),
    [  # 75 is os.EX_TEMPFAIL: a restart may help
        ("input", [1, 1, 1], f"^mt-train: error: {BAD_INPUT}$"),
        ("input before", [1, 1, 1], f"^mt-train: error: {BAD_INPUT}$"),
        ("never ready", [75, 0, 75], "only 2 ranks were ready within 0:00:01"),
        ("killed", [75, -signal.SIGKILL, 75], "lost the connection to another rank: "),
    ],
)
def test_three_ranks_under_torchrun_print_one_line(
    how: str, status: list[int], line: str, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=rank, args=(tmp_path, how, environment))
        for environment in rank_environments(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT)
    assert [process.exitcode for process in processes] == status
    (printed,) = (tmp_path / "stderr").read_text().splitlines()
    assert re.search(line, printed)


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
        failures.shared_store(timedelta(seconds=1))
