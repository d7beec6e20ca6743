"""Ranks, devices, launching and collectives: the only file that names torch.distributed.

A single process is the trivial case: every collective returns what it is given.
"""

import ctypes
import json
import logging
import os
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's place among the ranks that share a run."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and talks to the user."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether any rank's flag is set; every rank gets the same answer."""
        if self.size == 1:
            return flag
        # On the CPU: it waits for the other ranks, not for the GPU.
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over ranks in ``backward``."""
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        with warnings.catch_warnings():  # torch 2.13 has a new name for it, 2.11 has not
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(
                module, device_ids=devices, gradient_as_bucket_view=True, broadcast_buffers=False
            )

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Forward and backward without averaging, for all but the last part of an update."""
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()


def pick_device(name: str) -> torch.device:
    """The device that a config's ``device`` names: ``cpu``, ``cuda`` or ``auto``.

    Raises:
        InputError: ``cuda`` is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda, but PyTorch sees no GPU here: say device=cpu or auto")
    use_cuda = name == "cuda" or (name == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if use_cuda else "cpu")


def under_launcher() -> bool:
    """Whether torchrun, or anything that sets its environment, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def env_rank() -> int:
    """This process's rank by its environment; 0 where there is no launcher."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """Joins the ranks that the environment names, for as long as the context lasts."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cpu":
        _keep_freed_memory()
    if size == 1:
        yield World(device)
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        torch.set_num_threads(max(1, torch.get_num_threads() // local_size))
        dist.init_process_group("gloo")
    try:
        yield World(device, dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def _keep_freed_memory() -> None:
    """Makes glibc keep large freed blocks for reuse instead of handing them back.

    Each update frees and asks for the same tensors again; a page handed back is cleared by the
    kernel when it is touched anew (a fresh 32 MB product: 52 ms; a reused one: 6 ms).
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc has it, musl has not
        m_trim_threshold, m_mmap_threshold, most = -1, -3, 2**31 - 1
        mallopt(m_mmap_threshold, most)
        mallopt(m_trim_threshold, most)


def launch(worker: Callable[..., None], args: tuple[object, ...], processes: int) -> None:
    """Runs ``worker(*args)`` in several processes on this machine, by torch's elastic launcher.

    SIGINT and SIGTERM are passed on to the workers, which have 30 seconds to end.

    Raises:
        InputError: A worker raised it, or was killed.
        SystemExit: A worker exited, or a signal ended them all.
    """
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with TemporaryDirectory(prefix="mt-workers-") as logs:
        # Workers find each other on this machine only.
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, _own_session)(worker, *args)
        except SignalException as stopped:
            raise SystemExit(128 + stopped.sigval) from None
        except ChildFailedError as failed:
            raise _cause(failed, Path(logs)) from None


def _own_session(worker: Callable[..., None], *args: object) -> None:
    # Ctrl-C reaches the launcher only, which passes it on: a worker gets it once.
    os.setsid()
    worker(*args)


def _cause(failed: ChildFailedError, logs: Path) -> Exception | SystemExit:
    """The error that a person should read: one rank's mistake makes other ranks fail as well."""
    messages = [json.loads(path.read_text())["message"] for path in logs.rglob("error.json")]
    for message in messages:
        name, _, text = message["message"].partition(": ")
        if name == InputError.__name__:
            return InputError(text)
    for message in messages:
        print(message["extraInfo"]["py_callstack"], file=sys.stderr)
    _, failure = failed.get_first_failure()
    if failure.exitcode < 0:
        return InputError(f"a worker was killed: {failure.message}")
    return SystemExit(failure.exitcode)
