"""Prefetching: order, distance and errors."""

import threading
from collections.abc import Iterator

import pytest

from transformer_mt.data.batching.prefetch import prefetch


def test_steps_are_read_in_order() -> None:
    assert list(prefetch(lambda step: step * step, range(5, 12))) == [n * n for n in range(5, 12)]
    assert list(prefetch(lambda step: step, range(0))) == []


def test_two_steps_are_prefetched() -> None:
    started: list[int] = []
    third = threading.Event()

    def read(step: int) -> int:
        started.append(step)
        if step == 2:
            third.set()
        return step

    steps = prefetch(read, range(100))
    assert next(steps) == 0
    assert third.wait(10)  # the next two steps are read while the first is processed
    steps.close()
    assert started == [0, 1, 2]


def test_an_error_is_raised_at_its_step() -> None:
    def read(step: int) -> int:
        if step == 2:
            raise ValueError("step 2")
        return step

    steps: Iterator[int] = prefetch(read, range(5))
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(ValueError, match="step 2"):
        next(steps)
