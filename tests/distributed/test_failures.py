"""What a person reads when ranks fail, and which failures are followed by a new start."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from training import LONG

from transformer_mt import distributed
from transformer_mt.config import DistributedConfig
from transformer_mt.data.store.workers import KilledError
from transformer_mt.distributed.failures import may_pass, name_of_start
from transformer_mt.errors import InputError

CPU = torch.device("cpu")
ADVICE = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
"""The end of every such message of torch's."""


@pytest.mark.parametrize(
    ("name", "text", "passing"),
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
        ("MachineError", "rank 1 of 2, lost contact", True),
    ],
)
def test_what_a_new_start_may_mend(name: str, text: str, passing: bool) -> None:
    assert may_pass(name, text) is passing
    assert may_pass(name, f"{text}\n{ADVICE}") is passing


def work(folder: Path, how: str) -> None:
    """Counts the start of each rank; some go wrong on the way."""
    with (folder / "starts").open("a") as file:
        file.write("x")
    minutes = 20 / 60 if how == "hangs" else 10.0
    if how == "input before" and os.environ["RANK"] == "1":
        raise InputError("data.tsv, line 7: the file is on fire")
    with distributed.join(CPU, DistributedConfig(timeout_minutes=minutes)) as world:
        world.any(False)
        starts = len((folder / "starts").read_text())
        if how == "bug everywhere":
            raise ValueError("seven")
        if world.rank == 1:
            match how:
                case "input":
                    raise InputError("data.tsv, line 7: the file is on fire")
                case "input of a kind":
                    raise KilledError("data.tsv, line 7: the file is on fire")
                case "bug":
                    raise ValueError("seven")
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
                case "asked to end":
                    os.kill(os.getpid(), signal.SIGTERM)
                case "hangs":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "leaves":
                    raise SystemExit(143)
        world.any(False)  # for ever, if nobody ends it


def launch(folder: Path, how: str, restarts: int = 0) -> int:
    """Launches two ranks; how often they were started."""

    def progress() -> str:
        checkpoint = folder / "checkpoint"
        return checkpoint.read_text() if checkpoint.exists() else ""

    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    begun = time.monotonic()
    try:
        distributed.launch(work, (folder, how), 2, restarts=restarts, progress=progress)
    finally:
        assert time.monotonic() - begun < LONG
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    return len((folder / "starts").read_text()) // 2


@pytest.mark.parametrize("how", ["input", "input before", "input of a kind"])
def test_bad_input_on_one_rank_is_one_line(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"^data\.tsv, line 7: the file is on fire$"):
        launch(tmp_path, how, restarts=3)
    assert len((tmp_path / "starts").read_text()) <= 2  # no new start could help
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["bug", "bug everywhere", "bug in a kernel"])
def test_a_bug_is_one_traceback_with_its_place(
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
        assert lines[-2] == "ValueError: seven"
    assert lines[-1].startswith("rank " if how == "bug everywhere" else "rank 1 of 2, on ")


def test_a_full_disk_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no" / "such" / "file"
    with pytest.raises(InputError, match=rf"^No such file or directory: {path}$"):
        launch(tmp_path, "disk", restarts=3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", ["asked to end", "leaves"])
def test_a_worker_that_is_asked_to_end_ends_all(how: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        launch(tmp_path, how, restarts=3)
    assert stopped.value.code == 143
    assert len((tmp_path / "starts").read_text()) == 2


def test_a_killed_worker_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"^worker 1 \(process \d+\) was killed by SIGKILL"):
        launch(tmp_path, "killed")
    assert capfd.readouterr().err == ""


def test_a_worker_that_lost_its_gpu_is_started_anew(tmp_path: Path) -> None:
    assert launch(tmp_path, "lost GPU at first", restarts=1) == 2


def test_a_killed_worker_is_started_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "transformer_mt"):
        assert launch(tmp_path, "killed at first", restarts=1) == 2
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("transformer_mt")]
    assert "worker 1 (process " in line
    assert "was killed by SIGKILL" in line
    assert "all 2 workers are started anew (1 of 1 " in line


@pytest.mark.slow
def test_new_starts_are_counted_from_the_last_checkpoint(tmp_path: Path) -> None:
    assert launch(tmp_path, "killed after progress", restarts=1) == 4
    with pytest.raises(InputError, match="1 new starts in a row came to no checkpoint"):
        launch(tmp_path, "killed", restarts=1)


@pytest.mark.slow
def test_a_stopped_worker_is_detected_and_killed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^rank 0 of 2, on .*, lost contact .*: Timed out"):
        launch(tmp_path, "hangs")


# As under torchrun, where no launcher of ours collects the reports.

RANK = """
import sys
from pathlib import Path
from test_failures import work
from transformer_mt import distributed
from transformer_mt.errors import InputError
distributed.adopt_slurm_step()
try:
    with distributed.one_report():
        work(Path(sys.argv[1]), sys.argv[2])
except InputError as error:
    sys.exit(f"mt-train: error: {error}")
"""


def ranks(folder: Path, how: str, port: int) -> tuple[list[int], str]:
    """The status of each of three tasks of a Slurm step, and what all of them print."""
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "localhost",
        "MASTER_PORT": str(port),
        "PYTHONPATH": str(Path(__file__).parent),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), how],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in range(3)
    ]
    errors = [process.communicate(timeout=LONG)[1] for process in processes]
    return [process.returncode for process in processes], "".join(errors)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("how", ["input", "input before"])
def test_without_our_launcher_bad_input_is_one_line_too(
    how: str, tmp_path: Path, free_port: int
) -> None:
    status, printed = ranks(tmp_path, how, free_port)
    assert status == [1, 1, 1]
    assert printed == "mt-train: error: data.tsv, line 7: the file is on fire\n"


def test_without_our_launcher_a_killed_rank_is_worth_a_new_start(
    tmp_path: Path, free_port: int
) -> None:
    status, printed = ranks(tmp_path, "killed", free_port)
    assert status == [os.EX_TEMPFAIL, -signal.SIGKILL, os.EX_TEMPFAIL]
    (line,) = printed.splitlines()
    assert "lost contact with another rank: " in line


def test_a_new_start_does_not_take_what_the_last_one_left_for_its_own() -> None:
    """The store of torchrun lives on, and who comes first in the new start is chance."""
    store, size = torch.distributed.HashStore(), 3  # type: ignore[attr-defined]

    def come(rank: int, after: float) -> str:
        time.sleep(after)
        return name_of_start(store, rank, size, timedelta(seconds=LONG))

    store.set("call 1", "of a rank that died before rank 0 came")
    with ThreadPoolExecutor(size) as threads:
        names = [
            set(threads.map(come, range(size), delays))
            for delays in [(0, 0, 0), (0.3, 0, 0), (0, 0.3, 0.15), (0.3, 0.15, 0)]
        ]
    assert [len(of_a_start) for of_a_start in names] == [1, 1, 1, 1]
    assert len(set.union(*names)) == 4


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_in_vain_says_for_whom(rank: int) -> None:
    with pytest.raises(RuntimeError, match=r"rank.* come within 0:00:00\.2"):
        name_of_start(torch.distributed.HashStore(), rank, 2, timedelta(seconds=0.2))  # type: ignore[attr-defined]
