"""Ranks that are forked, and so need not import PyTorch again."""

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable

import torch


def rank_environments(size: int) -> list[dict[str, str]]:
    """What torchrun gives each rank in its environment, with a port at which they can meet."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    shared |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
    return [{**shared, **dict.fromkeys(("RANK", "LOCAL_RANK"), str(i))} for i in range(size)]


def run_ranks(size: int, work: Callable[..., object], *args: object, timeout: float = 60) -> None:
    """Runs ``work(*args)`` on several ranks, with one thread each, all of which must succeed."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_rank, args=(environment, work, args))
        for environment in rank_environments(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * size


def _rank(environment: dict[str, str], work: Callable[..., object], args: tuple[object]) -> None:
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not the handlers of the tests
    torch.set_num_threads(1)
    work(*args)
