"""Parallel map over worker processes, with results in order and bounded memory.

Not joblib 1.6: its generators read all input while the consumer is idle, and its workers outlive a
killed parent.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain, islice
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, TypeVar

from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import available_cores

T = TypeVar("T")
R = TypeVar("R")


class WorkerKilledError(InputError):
    """A worker process was killed."""


_ITEMS_PER_PROCESS = 2
"""Items in flight for each process: enough to keep it busy, few enough to bound the memory."""


def num_workers(configured: int | None) -> int:
    """``data.workers``, or as many as there are cores."""
    return available_cores() if configured is None else configured


def map_ordered(
    task: Callable[[T], R],
    items: Iterable[T],
    processes: int,
    *,
    nice: int = 0,
    setting: str = "data.workers",
) -> Generator[R, None, None]:
    """Yields ``task(item)`` for every item, in order, computed by worker processes.

    A single item is processed in this process. Ctrl-C ends the workers at once.

    Args:
        task: A picklable callable; each worker process gets a copy when it starts.
        items: Read only a few items ahead of the results that are consumed.
        processes: Maximum number of worker processes; 0 and 1 work in this process.
        nice: Niceness added to the worker processes.
        setting: Name of the setting of ``processes``, for the error message.

    Raises:
        WorkerKilledError: A worker process was killed.
    """
    items = iter(items)
    first = list(islice(items, 2))
    items = chain(first, items)
    if processes <= 1 or len(first) < 2:
        yield from map(task, items)
        return
    context = multiprocessing.get_context("spawn")
    # Workers exit as soon as the writer is closed: here, or because this process was killed.
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        processes, context, initializer=_start_worker, initargs=(task, nice, reader)
    )
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            if len(pending) >= _ITEMS_PER_PROCESS * processes:
                yield pending.popleft().result()
            # Only while processes may start: it changes the environment of all threads.
            with _lightweight_start() if len(pool._processes) < processes else nullcontext():
                pending.append(pool.submit(_run_task, item))
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise WorkerKilledError(
            f"a worker process was killed; if memory ran out, set {setting} below {processes}. "
            "Then run the same command again"
        ) from None
    except KeyboardInterrupt:
        writer.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        writer.close()
        reader.close()


_task: Callable[[Any], Any]
"""The task of this worker process."""


def _start_worker(task: Callable[[Any], Any], nice: int, parent: Connection) -> None:
    global _task
    _task = task
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _run_task(item: Any) -> Any:
    return _task(item)


def _exit_with(parent: Connection) -> None:
    with suppress(EOFError):
        parent.recv()  # nothing is ever sent
    os._exit(1)


@contextmanager
def _lightweight_start() -> Iterator[None]:
    """Keeps worker processes that start in this context small.

    They do not import the main program, which imports PyTorch, and their NumPy starts no threads.
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
