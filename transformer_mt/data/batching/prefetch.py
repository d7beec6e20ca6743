"""The batches of the updates to come, read while the device is at work."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

_AHEAD = 2
"""Updates read ahead. One is enough to hide the reading; the second evens out what varies."""


def prefetch(read: Callable[[int], T], steps: Iterable[int]) -> Generator[T, None, None]:
    """``read(step)`` of every step in order, by a thread that is a little ahead.

    What ``read`` raises is raised here, in its turn. Who does not go on to the end closes it.
    """
    to_come = iter(steps)
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        pending = deque(thread.submit(read, step) for step in islice(to_come, _AHEAD))
        while pending:
            batch = pending.popleft().result()
            pending.extend(thread.submit(read, step) for step in islice(to_come, 1))
            yield batch
