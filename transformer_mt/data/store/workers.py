"""Work in other processes: a parallel map, with results in order and bounded memory.

Not concurrent.futures: ending its pool waits for messages that a killed process cannot finish. Not
joblib 1.6: its generators read all input while the consumer is idle.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Generic, TypeVar

from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import available_cores

T = TypeVar("T")
R = TypeVar("R")

_ITEMS_PER_PROCESS = 2
"""Items in flight for each process: enough to keep it busy, few enough to bound the memory."""

_NICENESS = 10
"""Niceness of worker processes, some of which run beside training."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that workers never receive: the parent handles them and ends its workers."""


def num_workers(configured: int | None) -> int:
    """``data.workers``, or as many as there are cores."""
    return available_cores() if configured is None else configured


def map_ordered(
    task: Callable[[T], R], items: Iterable[T], processes: int
) -> Generator[R, None, None]:
    """Yields ``task(item)`` for every item, in order, computed by worker processes.

    A single item is processed in this process. Ctrl-C ends the workers at once.

    Args:
        task: A picklable callable; each worker process gets a copy when it starts.
        items: Read only a few items ahead of the results that are consumed.
        processes: Maximum number of worker processes; 0 and 1 work in this process.

    Raises:
        InputError: A worker process was killed.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if processes <= 1 or len(first) < 2:
        yield from map(task, chain(first, items))
        return
    workers: list[_Worker[T, R]] = []
    idle = SimpleQueue[_Worker[T, R]]()

    def run(item: T) -> R:
        worker = idle.get()
        try:
            return worker(item)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(processes, thread_name_prefix="worker")
    pending: deque[Future[R]] = deque()
    try:
        for item in chain(first, items):
            if len(pending) >= _ITEMS_PER_PROCESS * processes:
                yield pending.popleft().result()
            if len(workers) < processes:
                workers.append(_Worker(task))
                idle.put(workers[-1])
            pending.append(threads.submit(run, item))
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for worker in workers:
            worker.kill()  # after which no thread waits for it
        threads.shutdown()


def run_in_process(task: Callable[[T], R], item: T) -> R:
    """Returns ``task(item)``, computed by another process, which Ctrl-C ends at once.

    Raises:
        InputError: The process was killed.
    """
    worker = _Worker(task)
    try:
        return worker(item)
    finally:
        worker.kill()


class _Worker(Generic[T, R]):
    """A process that runs a task on one item at a time."""

    def __init__(self, task: Callable[[T], R]):
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        with other:
            self._process = context.Process(target=_serve, args=(task, other), daemon=True)
            with _worker_start():
                self._process.start()

    def __call__(self, item: T) -> R:
        try:
            self._connection.send(item)
            succeeded, result = self._connection.recv()
        except (EOFError, OSError):
            raise InputError(
                "a worker process was killed: if memory ran out, close other programs, or set a "
                "smaller data.workers (mt-train); then run the same command again"
            ) from None
        if not succeeded:
            raise result
        return result

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(task: Callable[[Any], Any], connection: Connection) -> None:
    """Runs a task in a worker process, on the items that the parent sends."""
    os.nice(_NICENESS)
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            item = connection.recv()
            try:
                reply = True, task(item)
            except Exception as error:
                try:
                    failure = copy(error)  # as unpickling does in the main process
                except Exception:  # its class cannot be called with the arguments that it keeps
                    failure = RuntimeError(f"{type(error).__name__}: {error}")
                failure.add_note(traceback.format_exc())
                reply = False, failure
            connection.send(reply)


@contextmanager
def _worker_start() -> Iterator[None]:
    """Context in which worker processes start: small, and with ``_SIGNALS`` blocked.

    They do not import the main program, which imports PyTorch, and their NumPy starts no threads.
    They inherit the blocked signals, which could otherwise interrupt their imports.
    """
    resource_tracker.ensure_running()  # its start, which the first worker needs, would unblock them
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    added = {key: value for key, value in single.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        sys.modules["__main__"] = program
        for key in added:
            del os.environ[key]
