"""Work shared out to processes: results in order, a few items ahead, no process left behind."""

import math
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, TypeVar

from transformer_mt.errors import InputError

T = TypeVar("T")
R = TypeVar("R")


class KilledError(InputError):
    """A process that works for this one was killed."""


_AHEAD = 2
"""Items that wait for each process: enough that none is idle, few enough to bound the memory."""


def available_cores() -> int:
    """Cores that this process may use, by its affinity and by its container's or job's quota."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return max(1, math.ceil(min(len(os.sched_getaffinity(0)), _quota(Path("/")))))
    return os.cpu_count() or 1


def _quota(root: Path) -> float:
    """Cores' worth of time that the control groups of this process grant it; inf if any.

    A group has no more than those that it is in. Inside a container, where only the container's
    own group is to be seen, that is the root.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for _, kind, name in (line.split(":", 2) for line in lines):
        mount, files = root / "sys/fs/cgroup", ["cpu.max"]
        if "cpu" in kind.split(","):  # version 1
            mount, files = mount / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        elif kind:  # version 1, of memory or the like
            continue
        path = PurePosixPath(name.lstrip("/"))
        for group in (path, *path.parents):
            try:
                numbers = " ".join((mount / group / file).read_text() for file in files).split()
                granted, period = (float(number) for number in numbers)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if granted > 0:  # version 1 says -1 where there is no limit
                quota = min(quota, granted / period)
    return quota


def map_ordered(
    work: Callable[[T], R], items: Iterable[T], processes: int, *, nice: int = 0
) -> Generator[R, None, None]:
    """``work(item)`` of every item, in order, whoever is done first.

    A single item is not worth a second process, and is worked on in this one.

    Args:
        work: A callable that can be pickled; each process gets a copy of its own.
        items: Drawn only as results are.
        processes: Most processes; 0 or 1 is this one.
        nice: Niceness of the other processes: 10 stands back for what is to come first.

    Raises:
        KilledError: A process was killed.
    """
    items = iter(items)
    first = list(islice(items, 2))
    items = chain(first, items)
    if processes <= 1 or len(first) < 2:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(work, nice))
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            if len(pending) >= _AHEAD * processes:
                yield pending.popleft().result()
            with _bare_start():
                pending.append(pool.submit(_do, item))
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise KilledError(
            "a process that prepares the data was killed; if memory ran out, set data.workers "
            f"below {processes}. The same command goes on from here"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_work: Callable[[Any], Any]
"""What this process was started for."""


def _begin(work: Callable[[Any], Any], nice: int) -> None:
    global _work
    _work = work
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _do(item: Any) -> Any:
    return _work(item)


def _end_with_parent() -> None:
    # Idle workers would wait for a parent that was killed for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _bare_start() -> Iterator[None]:
    """A process started meanwhile is a small one.

    It does not import the program again, as Python would have it, and with that PyTorch; and its
    NumPy begins no thread on every core.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    added = {key: value for key, value in single.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        sys.modules["__main__"] = program
        for key in added:
            del os.environ[key]
