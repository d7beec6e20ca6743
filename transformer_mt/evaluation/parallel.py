"""Jobs of an evaluation, run by worker processes if there is much to compute."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from transformer_mt.data.store.workers import map_ordered
from transformer_mt.kernels.hardware import available_cores

R = TypeVar("R")

_WORTH_WORKERS = 2.0
"""Seconds of computation that are worth starting worker processes, which takes about one."""


def run_jobs(
    jobs: Sequence[Callable[[], R]], *, workers: int | None, seconds: float
) -> Iterator[R]:
    """Yields the result of every job, in order.

    Args:
        jobs: Picklable functions without arguments.
        workers: Worker processes; None: one per core, or none if there is little to compute.
        seconds: Estimate of the computation, by one core.
    """
    if workers is None:
        workers = available_cores() if seconds >= _WORTH_WORKERS else 0
    with closing(map_ordered(operator.call, jobs, workers, setting="workers")) as results:
        yield from results
