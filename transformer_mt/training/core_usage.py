"""A warning about other programs on the cores that training uses."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_WINDOW_SECONDS = 60.0
"""Minimum time of updates that is judged at once."""

_MIN_USAGE = 0.6
"""Share of their cores that the threads have at least: alone on a machine they have more than 0.9,
because a thread that is done early waits for the others actively."""


class CoreUsage:
    """Compares the CPU time of this process with the time that its threads are to compute.

    The threads of a matrix product wait for each other: a program that takes one of two cores takes
    more than half of the speed, while a single thread keeps most of its own.

    Args:
        threads: Number of threads, each of which needs a core; with one, there is no warning.
    """

    def __init__(self, threads: int):
        self._threads = threads
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def check(self, waited: float) -> str | None:
        """A warning after a minute or more with too little CPU time, once.

        Args:
            waited: Seconds since the last call for which training has waited for its data.
        """
        self._wall += waited
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if self._threads == 1 or wall < _WINDOW_SECONDS:
            return None
        self._wall, self._cpu = self._wall + wall, self._cpu + cpu
        cores = cpu / wall
        if cores >= _MIN_USAGE * self._threads:
            return None
        fewer = max(1, int(cores))
        message = (
            f"warning: for {wall / 60:.0f} min the {self._threads} threads of training got only "
            f"{cores:.1f} cores, and waited for each other: if other programs use this "
            f"machine, set OMP_NUM_THREADS={fewer} and run the same command again to continue"
        )
        self._threads = 1  # the warning is given once
        return message

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self._wall += time.perf_counter() - wall
        self._cpu += time.process_time() - cpu
