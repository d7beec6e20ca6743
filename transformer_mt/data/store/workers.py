"""Work in other processes: a parallel map, with results in order and bounded memory."""

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
from types import ModuleType
from typing import Any, TypeVar

from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import available_cores

T = TypeVar("T")
R = TypeVar("R")

_ITEMS_PER_PROCESS = 2
"""Items in flight for each process: enough to keep it busy, few enough to bound the memory."""

_THREADS = "OPENBLAS_NUM_THREADS"


def map_ordered(
    task: Callable[[T], R], items: Iterable[T], processes: int | None
) -> Generator[R, None, None]:
    """Yields ``task(item)`` for every item, in order, computed by worker processes.

    A single item is processed in this process. Ctrl-C ends the worker processes at once.

    Args:
        task: A picklable callable; each worker process gets a copy when it starts.
        items: Read only a few items ahead of the results that are consumed.
        processes: Maximum number of worker processes; 0 and 1 work in this process, None takes as
            many as there are cores.

    Raises:
        InputError: A worker process was killed.
    """
    processes = available_cores() if processes is None else processes
    items = iter(items)
    first = list(islice(items, 2))
    if processes <= 1 or len(first) < 2:
        yield from map(task, chain(first, items))
        return
    pending: deque[Future[R]] = deque()
    with _pool(task, processes) as pool:
        for item in chain(first, items):
            if len(pending) >= _ITEMS_PER_PROCESS * processes:
                yield pending.popleft().result()
            pending.append(_submit(pool, item))
        while pending:
            yield pending.popleft().result()


def run_in_process(task: Callable[[T], R], item: T) -> R:
    """Returns ``task(item)``, computed by another process, which Ctrl-C ends at once.

    Raises:
        InputError: The process was killed.
    """
    with _pool(task, 1) as pool:
        return _submit(pool, item).result()


@contextmanager
def _pool(task: Callable[[Any], Any], processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that have a task; an exception, such as Ctrl-C, ends them at once."""
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    pool = ProcessPoolExecutor(processes, context, _start_worker, (task,))
    try:
        yield pool
    except BrokenProcessPool:
        raise InputError(
            "a worker process was killed: if memory ran out, close other programs, or set a "
            "smaller data.workers (mt-train); then run the same command again"
        ) from None
    except BaseException:
        for worker in set(multiprocessing.active_children()).difference(others):
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(task: Callable[[Any], Any]) -> None:
    """Prepares this worker process for its task."""
    global _task
    _task = task
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker process when its parent is killed; the executor would leave it."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _run_task(item: Any) -> Any:
    return _task(item)


_task: Callable[[Any], Any]
"""The task of this worker process."""


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
    """Submits an item; a worker process that this starts is small, and deaf to Ctrl-C.

    It does not import the main program, which may import PyTorch, or be a script that calls
    ``train`` without asking whether it is ``__main__``; and its NumPy starts no threads. Ctrl-C is
    for the parent, which ends its workers; they inherit that it is blocked.
    """
    program, threads = sys.modules["__main__"], os.environ.get(_THREADS)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ[_THREADS] = threads or "1"
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_run_task, item)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.modules["__main__"] = program
        if threads is None:
            del os.environ[_THREADS]
