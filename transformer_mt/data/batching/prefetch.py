"""Prefetching: a thread reads the batches of the next updates while the device computes."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import TypeVar

from transformer_mt.kernels.hardware import background_thread

T = TypeVar("T")

_PREFETCHED_STEPS = 2
"""One step is enough to hide the reading; the second evens out variations."""


def prefetch(read: Callable[[int], T], steps: Iterable[int]) -> Generator[T, None, None]:
    """Yields ``read(step)`` for each step in order, computed by a thread a few steps ahead.

    An exception in ``read`` is raised here when its step is reached. Close the generator to stop
    before the end.
    """
    remaining = iter(steps)
    with background_thread("prefetch") as thread:
        pending = deque(thread.submit(read, step) for step in islice(remaining, _PREFETCHED_STEPS))
        while pending:
            batch = pending.popleft().result()
            pending.extend(thread.submit(read, step) for step in islice(remaining, 1))
            yield batch
