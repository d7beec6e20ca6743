"""What a rank may do: know its place, sum, vote, gather, broadcast, average gradients."""

import ctypes
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.config import DistributedConfig
from transformer_mt.config.checks import choice
from transformer_mt.distributed.environment import (
    env_local_rank,
    env_local_size,
    env_rank,
    env_size,
    place,
)
from transformer_mt.distributed.failures import store_for_group
from transformer_mt.errors import InputError

T = TypeVar("T")

_DEFAULT = DistributedConfig()


@dataclass(frozen=True)
class World:
    """This process's place among the ranks that share a run."""

    device: torch.device
    rank: int = 0
    size: int = 1
    compression: str = "none"
    """Of gradients on their way: ``none`` or ``bf16``."""

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and talks to the user."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, which is put in its place."""
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

    def broadcast_object(self, value: T) -> T:
        """The main rank's value, on every rank."""
        if self.size == 1:
            return value
        values: list[Any] = [value if self.is_main else None]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Gives tensors of any type, on the device or the CPU, the main rank's values, in place."""
        if self.size == 1:
            return
        waiting = []
        for tensor in tensors:
            if tensor.numel():
                own = tensor.detach()
                dense = own.contiguous()
                # As bytes: not every backend knows every type. All are on their way at once,
                # so that hundreds of small ones cost no hundred round trips.
                work = dist.broadcast(dense.view(-1).view(torch.uint8), 0, async_op=True)
                waiting.append((work, own, dense))
        for work, own, dense in waiting:
            assert work is not None
            work.wait()
            if dense.data_ptr() != own.data_ptr():
                own.copy_(dense)

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over ranks in ``backward``.

        Not with DDP's ``static_graph``: it is for graphs with unused weights or reentrant
        checkpointing, which this model has not, and it is broken with ``no_sync``: the first
        backward fails an assertion (torch 2.11, 2.13), and without that one gradients of later
        updates would stay unreduced (pytorch/pytorch#187732).
        """
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        with warnings.catch_warnings():  # torch 2.13 has a new name for it, 2.11 has not
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            parallel = DistributedDataParallel(
                module, device_ids=devices, gradient_as_bucket_view=True, broadcast_buffers=False
            )
        if self.compression == "bf16":
            parallel.register_comm_hook(None, _in_bf16)
        return parallel

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Forward and backward without averaging, for all but the last part of an update."""
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()


def _in_bf16(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    # DDP refuses torch's hook, by its name, where there is no NCCL; gloo can do it as well.
    return bf16_compress_hook(group, bucket)


def pick_device(name: str, key: str = "device") -> torch.device:
    """The device that a setting names: ``cpu``, ``cuda`` or ``auto``.

    Args:
        name: Its value.
        key: The setting, for messages.

    Raises:
        InputError: ``cuda`` is asked for and there is none, or it is another name.
    """
    choice(key, name, "auto", "cpu", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(f"{key}=cuda, but PyTorch sees no GPU here: say {key}=cpu or auto")
    use_cuda = name == "cuda" or (name == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if use_cuda else "cpu")


@contextmanager
def join(device: torch.device, config: DistributedConfig = _DEFAULT) -> Iterator[World]:
    """Joins the ranks that the environment names, for as long as the context lasts.

    A collective that lasts longer than ``timeout_minutes`` fails on the ranks that wait. Each
    update has one on the CPU (``World.any``), which also notices a rank that died, at once; so a
    GPU run does not depend on what NCCL does about it, which is left as torch sets it: a watchdog
    that aborts the process when a collective exceeds the same timeout.

    Raises:
        InputError: There is no GPU for this rank, or the others cannot be reached.
    """
    if device.type == "cpu":
        _keep_freed_memory()
    size = env_size()
    if size == 1:
        yield World(device)
        return
    backend = "gloo"
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
        device = torch.device("cuda", _gpu_index())
        torch.cuda.set_device(device)
    else:  # srun binds each task to cores of its own, and does not set LOCAL_WORLD_SIZE
        local_size = env_local_size()
        torch.set_num_threads(max(1, torch.get_num_threads() // local_size))
    timeout = timedelta(minutes=config.timeout_minutes)
    store = store_for_group(timeout)
    dist.init_process_group(backend, store=store, rank=env_rank(), world_size=size, timeout=timeout)
    yield World(device, env_rank(), size, config.compression)
    # Not after an exception: with one rank gone, NCCL would wait for it. See one_report.
    dist.destroy_process_group()


def _gpu_index() -> int:
    """Which of the visible GPUs is this rank's."""
    count, index = torch.cuda.device_count(), env_local_rank()
    if count == 1:  # srun --gpus-per-task=1 shows each task its own only
        return 0
    if index >= count:
        raise InputError(f"{place()}: no GPU is left for process {index + 1} here, {count} in all")
    return index


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
