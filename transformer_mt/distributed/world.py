"""Process group of a run: rank, device, collectives and data-parallel gradients."""

import logging
import os
import signal
import socket
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# DDP imports it, too. Imported after ``init_process_group``, its functions have the group as their
# default, so that it is never freed, and its threads can abort the process at its exit.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.distributed import LAUNCHER, current_rank
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The ranks that share a run, as seen by one of them, with their devices and collectives."""

    device: torch.device
    """Device of this rank."""
    rank: int = 0
    """Index of this rank."""
    size: int = 1
    """Number of ranks."""
    local_rank: int = 0
    """Index of this rank on its machine."""
    launcher: int | None = None
    """Process id of the torchrun that has started this rank; None if there is one rank."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which alone writes files and output."""
        return self.rank == 0

    @property
    def is_orphaned(self) -> bool:
        """Whether the torchrun that has started this rank has ended."""
        return self.launcher not in (None, os.getppid())

    def gather(self, value: T) -> list[T]:
        """Values of all ranks, in the order of ranks, on each rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0, on each rank."""
        if self.size == 1:
            return value
        values: list[Any] = [value if self.is_main else None]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all ranks, in place, and returns it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; the same on all ranks."""
        if self.size == 1:
            return flag
        # A CPU tensor: this waits for the other ranks, not for the GPU.
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copies the tensors of rank 0 to all ranks."""
        if self.size == 1:
            return
        for tensor in tensors:
            dense = tensor.detach().contiguous()
            dist.broadcast(dense, 0)
            tensor.detach().copy_(dense)

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """Wraps a module in DDP, which averages gradients over ranks in ``backward``.

        DDP's ``static_graph`` is not used: this model does not need it, and together with
        ``no_sync`` its first backward pass fails in torch 2.11 to 2.13 (pytorch/pytorch#187732).
        """
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        with warnings.catch_warnings():  # torch 2.13 renamed it, 2.11 lacks the new name
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(
                module, device_ids=devices, gradient_as_bucket_view=True, broadcast_buffers=False
            )


def pick_device(name: str, key: str = "device") -> torch.device:
    """Device for a setting ``key``: ``cpu``, ``cuda``, or ``auto``, a GPU if there is one.

    Raises:
        InputError: There is no GPU for ``cuda``.
    """
    problem = "" if name == "cpu" else _cuda_problem()
    if name == "cuda" and problem:
        advice = f"set {key}=cpu or auto"
        raise InputError(f"{key}=cuda, but PyTorch can use no GPU here ({problem}): {advice}")
    return torch.device("cpu" if name == "cpu" or problem else "cuda")


def warn_about_gpu(name: str) -> None:
    """Warns if ``auto`` takes the CPU though there is an NVIDIA GPU, unless the GPU is hidden."""
    if name != "auto" or not Path("/dev/nvidiactl").exists():
        return
    problem = _cuda_problem()
    if problem and not problem.startswith("No CUDA GPUs"):  # as by CUDA_VISIBLE_DEVICES
        log.warning("warning: using the CPU, as PyTorch cannot use the GPU here: %s", problem)


def _cuda_problem() -> str:
    """Why PyTorch can use no GPU; empty if it can."""
    with warnings.catch_warnings(action="ignore"):  # torch's own about an old driver
        if torch.cuda.is_available():
            return ""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return "torch.cuda.is_available() is false"


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """Joins the process group of the ranks that the environment names, within the context.

    A collective that takes longer than 30 minutes, torch's default, fails on the waiting ranks, and
    so does joining. Each update has one on the CPU (``World.any``), which also fails as soon as a
    rank dies; so a GPU run does not depend on the watchdog of NCCL, which aborts the process.

    Of several GPUs each rank takes its own.

    Raises:
        InputError: There is no GPU for this rank, or torchrun cannot restart the ranks.
    """
    hardware.set_up(device.type)
    if (ranks := int(os.environ.get("WORLD_SIZE", 1))) == 1:
        yield World(device)
        return
    launcher = int(os.environ.get(LAUNCHER, os.getppid()))
    if launcher != os.getppid():  # the ranks would wait for its store
        raise InputError("the process that started this rank has ended: run the command again")
    shares_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if shares_store and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise InputError(  # restarted ranks would look for the failed ones
            "torchrun --max-restarts needs --rdzv-backend=c10d and "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment, see scripts/README.md"
        )
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    backend = "gloo"
    if device.type == "cuda":
        if local_rank >= (count := torch.cuda.device_count()):
            raise InputError(
                f"process {local_rank + 1} on {socket.gethostname()} has no GPU, {count} are "
                f"visible: start at most {count} processes there"
            )
        backend = "cpu:gloo,cuda:nccl"
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    # Until ``Signals``: code in C++ that waits for another rank would not see Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    dist.init_process_group(backend)
    yield World(device, current_rank(), ranks, local_rank, launcher)
    dist.destroy_process_group()  # not after an exception: NCCL would wait for a lost rank
