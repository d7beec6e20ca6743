"""Parallel map over worker processes: order, bounded read-ahead, errors, start-up and cores."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from operator import length_hint
from pathlib import Path

import pytest
from support.polling import wait_until

from transformer_mt.data.store.workers import map_ordered, run_in_process
from transformer_mt.errors import InputError

# Tasks are pickled by name, so they are module-level functions.


def slower_if_even(number: int) -> tuple[int, int]:
    time.sleep(0.02 * (number % 2 == 0))
    return number, os.getpid()


def rendezvous(item: tuple[int, Path]) -> tuple[int, int]:
    """Makes the processes of the first two items wait for each other."""
    number, folder = item
    if number < 2:
        (folder / str(number)).touch()
        wait_until((folder / str(1 - number)).exists)
    return slower_if_even(number)


def disk_full(number: int) -> int:
    if number == 3:
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def killed(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_several_processes(tmp_path: Path) -> None:
    results = list(map_ordered(rendezvous, [(number, tmp_path) for number in range(12)], 2))
    assert [number for number, _ in results] == list(range(12))
    pids = {pid for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids


@pytest.mark.parametrize(("items", "processes"), [(5, 0), (5, 1), (1, 8), (0, 8)])
def test_little_work_stays_in_this_process(items: int, processes: int) -> None:
    results = list(map_ordered(slower_if_even, range(items), processes))
    assert results == [(number, os.getpid()) for number in range(items)]


def test_items_are_read_a_few_ahead() -> None:
    items = iter(range(100))
    with closing(map_ordered(slower_if_even, items, 2)) as results:
        for done in range(1, 11):
            next(results)
            num_read = 100 - length_hint(items)
            assert num_read - done <= 5  # two for each process, and the one being submitted


PROGRAM = """
import os, time
from functools import partial
from transformer_mt.data.store.workers import map_ordered, run_in_process
# No guard by __name__: worker processes do not import the program.
task = partial(exec, "import os, time; os.write(1, b'started\\\\n'); time.sleep(600)")
try:
    CALL
except KeyboardInterrupt:
    print("interrupted")
"""


def start(folder: Path, call: str) -> subprocess.Popen[str]:
    """A script that is as if ``train`` were called in it."""
    script = folder / "script.py"
    script.write_text(PROGRAM.replace("CALL", call))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize(
    "call",
    [
        "list(map_ordered(task, [{}] * 1000, 2))",
        "run_in_process(task, {})",
        # While they send results that are larger than a pipe.
        "for _ in map_ordered(bytes, [10**7] * 9999, 2): print('started', flush=True)",
    ],
)
def test_ctrl_c_ends_the_workers(tmp_path: Path, call: str) -> None:
    process = start(tmp_path, call)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, errors = process.communicate(timeout=60)  # no worker has kept the output open
    assert out.endswith("interrupted\n")
    assert (process.returncode, errors) == (0, "")  # no worker prints an error of its own


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, "list(map_ordered(task, [{}] * 2, 2))")
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.parametrize("processes", ["several", "one"])
def test_errors_and_the_death_of_a_worker_reach_the_parent(processes: str) -> None:
    def results(task: Callable[[int], int]) -> list[int]:
        if processes == "one":
            return [run_in_process(task, number) for number in (2, 3)]
        return list(map_ordered(task, range(50), 2))

    with pytest.raises(OSError, match="No space") as error:
        results(disk_full)
    assert error.value.errno == errno.ENOSPC
    remedy = r".*data\.workers" if processes == "several" else ""
    with pytest.raises(InputError, match=f"was killed{remedy}") as killing:
        results(killed)
    assert "\n" not in str(killing.value)


def surroundings(_: int) -> tuple[bool, str | None]:
    return "torch" in sys.modules, os.environ.get("OPENBLAS_NUM_THREADS")


def test_workers_import_little_and_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    program = sys.modules["__main__"]
    assert set(map_ordered(surroundings, range(4), 2)) == {(False, "1")}
    assert sys.modules["__main__"] is program
    assert "OPENBLAS_NUM_THREADS" not in os.environ
