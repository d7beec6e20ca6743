"""Work in other processes: a parallel map, with results in order and bounded memory."""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
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
    idle, pending = SimpleQueue[Callable[[T], R]](), deque[Future[R]]()

    def compute(item: T) -> R:
        worker = idle.get()
        try:
            return worker(item)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(processes) as threads, ExitStack() as workers:
        for number, item in enumerate(chain(first, items)):
            if len(pending) >= _ITEMS_PER_PROCESS * processes:
                yield pending.popleft().result()
            if number < processes:
                idle.put(workers.enter_context(_worker(task)))
            pending.append(threads.submit(compute, item))
        while pending:
            yield pending.popleft().result()


def run_in_process(task: Callable[[T], R], item: T) -> R:
    """Returns ``task(item)``, computed by another process, which Ctrl-C ends at once.

    Raises:
        InputError: The process was killed.
    """
    with _worker(task) as worker:
        return worker(item)


@contextmanager
def _worker(task: Callable[[T], R]) -> Iterator[Callable[[T], R]]:
    """Yields a function that computes the task in a worker process, which is killed at the end.

    No other process has the connection: this one notices that the worker was killed, also in the
    middle of a message. A queue of all workers would stay open, and its reader wait for the rest.
    """
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, task), daemon=True)

    def compute(item: T) -> Any:
        try:
            connection.send(item)
            worked, answer = connection.recv()
        except (EOFError, OSError):
            raise InputError(
                "a worker process was killed: if memory ran out, close other programs, or set a "
                "smaller data.workers (mt-train); then run the same command again"
            ) from None
        if not worked:
            raise answer
        return answer

    with theirs:
        _start(process)
    try:
        yield compute
    finally:
        process.kill()
        process.join()


def _serve(parent: Connection, task: Callable[[Any], Any]) -> None:
    """Sends the results of the task, or its errors, for the items of the parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            item = parent.recv()
            try:
                answer = True, task(item)
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = False, error
            parent.send(answer)


def _end_with_parent() -> None:
    """Ends this worker process when its parent is killed, also within a task."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _start(process: BaseProcess) -> None:
    """Starts a worker process, which is small, and deaf to Ctrl-C.

    It does not import the main program, which may import PyTorch, or be a script that calls
    ``train`` without ``if __name__ == "__main__"``; and its NumPy starts no threads. Ctrl-C is
    for the parent, which ends its workers; they inherit that it is blocked.
    """
    program, threads = sys.modules["__main__"], os.environ.get(_THREADS)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ[_THREADS] = threads or "1"
    resource_tracker.ensure_running()  # the first worker would, which unblocks the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.modules["__main__"] = program
        if threads is None:
            del os.environ[_THREADS]
