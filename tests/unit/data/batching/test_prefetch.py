"""Reading ahead: the order, the distance, and what goes wrong."""

import threading
from collections.abc import Iterator

import pytest

from transformer_mt.data.batching.prefetch import prefetch


def test_it_gives_every_step_in_order() -> None:
    assert list(prefetch(lambda step: step * step, range(5, 12))) == [n * n for n in range(5, 12)]
    assert list(prefetch(lambda step: step, range(0))) == []


def test_it_reads_ahead_but_not_far() -> None:
    begun: list[int] = []
    third = threading.Event()

    def read(step: int) -> int:
        begun.append(step)
        if step == 2:
            third.set()
        return step

    steps = prefetch(read, range(100))
    assert next(steps) == 0
    assert third.wait(10)  # while the first is at work, the next two are read
    steps.close()
    assert begun == [0, 1, 2]


def test_an_error_comes_in_its_turn() -> None:
    def read(step: int) -> int:
        if step == 2:
            raise ValueError("step 2")
        return step

    steps: Iterator[int] = prefetch(read, range(5))
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(ValueError, match="step 2"):
        next(steps)
