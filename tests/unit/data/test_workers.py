"""Work shared out to processes: the order, the distance, and what goes wrong."""

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from transformer_mt.data.workers import KilledError, available_cores, map_ordered

# What is given to another process must be found by its name.


def slower_if_even(number: int) -> tuple[int, int]:
    time.sleep(0.02 * (number % 2 == 0))
    return number, os.getpid()


def disk_full(number: int) -> int:
    if number == 3:
        raise OSError(errno.ENOSPC, "No space left on device")
    return number


def killed(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def loaded(number: int) -> tuple[bool, bool, str | None]:
    return "torch" in sys.modules, "pytest" in sys.modules, os.environ.get("OPENBLAS_NUM_THREADS")


def test_results_come_in_order_from_several_processes() -> None:
    results = list(map_ordered(slower_if_even, range(12), 2))
    assert [number for number, _ in results] == list(range(12))
    pids = {pid for _, pid in results}
    assert len(pids) == 2
    assert os.getpid() not in pids


@pytest.mark.parametrize(("items", "processes"), [(5, 0), (5, 1), (1, 8), (0, 8)])
def test_little_work_is_done_here(items: int, processes: int) -> None:
    results = list(map_ordered(slower_if_even, range(items), processes))
    assert results == [(number, os.getpid()) for number in range(items)]


def test_items_are_drawn_a_few_ahead() -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        for number in range(100):
            drawn += 1
            yield number

    results = map_ordered(slower_if_even, items(), 2)
    ahead = []
    for done in range(1, 11):
        next(results)
        ahead.append(drawn - done)
    results.close()
    assert max(ahead) <= 5  # two for each process, and one in the hand
    assert drawn < 20


def test_an_error_of_a_process_is_raised_here() -> None:
    results = map_ordered(disk_full, range(50), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="No space") as error:
        next(results)
    assert error.value.errno == errno.ENOSPC


def test_a_killed_process_is_told_in_one_line() -> None:
    with pytest.raises(KilledError, match=r"was killed; .* data\.workers below 2") as error:
        list(map_ordered(killed, range(50), 2))
    assert "\n" not in str(error.value)


def test_a_process_loads_no_more_than_its_work_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    program = sys.modules["__main__"]
    # This module imports pytest, the program that runs it would import more.
    assert set(map_ordered(loaded, range(4), 2)) == {(False, True, "1")}
    assert sys.modules["__main__"] is program
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_there_is_a_core() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
