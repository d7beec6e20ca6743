"""Process group of a run: rank, device, collectives and data-parallel gradients."""

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.config import DistributedConfig
from transformer_mt.config.checks import choice
from transformer_mt.distributed.environment import LauncherEnv, Ranks
from transformer_mt.distributed.failures import process_group_store
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware

log = logging.getLogger(__name__)

_DEFAULT = DistributedConfig()


@dataclass(frozen=True)
class World(Ranks):
    """The ranks that share a run, as seen by one of them, with their devices and collectives."""

    device: torch.device
    """Device of this rank."""
    rank: int = 0
    """Index of this rank."""
    size: int = 1
    """Number of ranks."""
    local_rank: int = 0
    """Index of this rank on its machine."""
    local_size: int = 1
    """Number of ranks on this machine."""

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

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Context without averaging, for all micro-batches of an update but the last."""
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()


def pick_device(name: str, key: str = "device") -> torch.device:
    """Device for a setting ``key``: ``cpu``, ``cuda``, or ``auto``, a GPU if there is one.

    Raises:
        InputError: The name is invalid, or there is no GPU for ``cuda``.
    """
    choice(key, name, "auto", "cpu", "cuda")
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
def join(device: torch.device, config: DistributedConfig = _DEFAULT) -> Iterator[World]:
    """Joins the process group of the ranks that the environment names, within the context.

    A collective that takes longer than ``timeout_minutes`` fails on the waiting ranks. Each update
    has one on the CPU (``World.any``), which also fails as soon as a rank dies; so a GPU run does
    not depend on the watchdog of NCCL, which aborts the process after the same timeout.

    Of several GPUs each rank takes its own. Within the context PyTorch uses this rank's share of
    the CPU cores.

    Raises:
        InputError: There is no GPU for this rank, or other ranks cannot be reached.
    """
    if device.type == "cpu":
        hardware.keep_freed_memory()
    env, default_threads = LauncherEnv.read(), torch.get_num_threads()
    hardware.limit_threads(env.local_size)
    try:
        if env.size == 1:
            yield World(device)
            return
        backend = "gloo"
        if device.type == "cuda":
            backend = "cpu:gloo,cuda:nccl"
            device = torch.device("cuda", _gpu_index(env))
            torch.cuda.set_device(device)
        timeout = timedelta(minutes=config.timeout_minutes)
        dist.init_process_group(
            backend,
            store=process_group_store(timeout),
            rank=env.rank,
            world_size=env.size,
            timeout=timeout,
        )
        yield World(device, env.rank, env.size, env.local_rank, env.local_size)
        # Not after an exception, when NCCL would wait for a lost rank; see propagate_errors.
        dist.destroy_process_group()
    finally:
        torch.set_num_threads(default_threads)


def _gpu_index(env: LauncherEnv) -> int:
    """Index of this rank's GPU among the visible ones."""
    count, index = torch.cuda.device_count(), env.local_rank
    if index >= count:
        raise InputError(
            f"{env}: process {index + 1} on this host has no GPU, {count} are visible: "
            f"start at most {count} processes on it"
        )
    return index
