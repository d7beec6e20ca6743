"""Ranks: which of how many this process is, by the environment variables of torchrun or Slurm."""

import math
import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeVar

from transformer_mt.errors import InputError

T = TypeVar("T")

# Below the ephemeral ports of Linux, which begin at 32768.
_PORTS = range(20000, 32000)
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SLURM_NUMBERS = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_STEP_ID")
_SLURM_LISTS = ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")


class Ranks:
    """The processes that share a job, as seen by one of them; by default this process alone."""

    rank: int = 0
    """Index of this process."""
    size: int = 1
    """Number of processes."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which alone writes files and output."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Values of all ranks, in the order of ranks, on each rank."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0, on each rank."""
        if self.size == 1:
            return value
        import torch
        import torch.distributed as dist

        values: list[Any] = [value if self.is_main else None]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]


def under_launcher(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun, or anything else that sets both of its variables, started this process."""
    return bool(environ.get("RANK") and environ.get("WORLD_SIZE"))


def env_size() -> int:
    """Number of ranks; 1 without a launcher."""
    return _number("WORLD_SIZE", 1, at_least=1) if under_launcher() else 1


def env_rank() -> int:
    """Rank of this process; 0 without a launcher."""
    size = env_size()
    return _number("RANK", 0, below=size) if size > 1 else 0


def env_local_rank() -> int:
    """Rank of this process on its machine, which is the index of its GPU."""
    return _number("LOCAL_RANK", 0) if env_size() > 1 else 0


def env_local_size() -> int:
    """Number of ranks on this machine; 1 if unknown."""
    return _number("LOCAL_WORLD_SIZE", 1, at_least=1) if env_size() > 1 else 1


def env_cores(available: int) -> int:
    """This rank's share of the cores that its process may use.

    Processes of torchrun share them. Tasks of srun may be bound to cores of their own, which
    depends on the cluster; their share of all cores of the step on this machine is the limit.
    """
    size, shared = env_local_size(), available
    if size > 1 and os.environ.get("SLURM_STEP_NUM_TASKS") == str(env_size()):
        shared = _number("SLURM_CPUS_ON_NODE", available * size)
    return max(1, min(available, shared // size))


def _number(name: str, default: int, *, at_least: int = 0, below: float = math.inf) -> int:
    """Value of a variable of the launcher; the default if it is empty or not set."""
    text = os.environ.get(name) or str(default)
    if not (text.isdecimal() and at_least <= int(text) < below):
        found = " ".join(f"{key}={value}" for key in _LAUNCHER if (value := os.environ.get(key)))
        raise InputError(
            f"{name}={text} is not valid ({found}): start all ranks by one launcher, such as "
            "torchrun, or unset RANK and WORLD_SIZE to run a single process"
        )
    return int(text)


def describe_rank() -> str:
    """Rank and host of this process, for error messages."""
    return f"rank {env_rank()} of {env_size()}, on {socket.gethostname()}"


def set_ranks_from_slurm(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets torchrun's variables in a task of ``srun --ntasks-per-node=8 mt-train …``.

    Only srun sets SLURM_STEP_NUM_TASKS; SLURM_NTASKS is also set in a batch script and in the shell
    of salloc, where this is a single process. Inside ``srun --pty bash`` it is one, too.

    Raises:
        InputError: There are several tasks, but not all of the variables that srun sets.
    """
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or "1"
    # Inside the step, a torchrun may have set the variables.
    if under_launcher(environ) or environ.get("SLURM_PTY_PORT") or tasks == "1":
        return
    slurm = {name: environ.get(name) or "" for name in (*_SLURM_NUMBERS, *_SLURM_LISTS)}
    try:
        rank, local_rank, node, job, step = (int(slurm[name]) for name in _SLURM_NUMBERS)
        hosts, counts = (slurm[name] for name in _SLURM_LISTS)
        local_size = _tasks_per_node(counts)[node]
        address = first_host(hosts)
        if not address or not 0 <= rank < int(tasks):
            raise ValueError
    except (ValueError, LookupError):
        found = " ".join(f"{name}={value}" for name, value in slurm.items())
        raise InputError(
            f"SLURM_STEP_NUM_TASKS={tasks}, but other variables of srun are missing or invalid "
            f"({found}): unset SLURM_STEP_NUM_TASKS to run a single process"
        ) from None
    sizes = {"WORLD_SIZE": int(tasks), "LOCAL_WORLD_SIZE": local_size}
    ranks = {"RANK": rank, "LOCAL_RANK": local_rank}
    environ.update({name: str(number) for name, number in (ranks | sizes).items()})
    # Not SLURM_LAUNCH_NODE_IPADDR, the host of srun, which may be a login node.
    environ["MASTER_ADDR"] = environ.get("MASTER_ADDR") or address
    # The same for all tasks of a step, different for other steps and jobs.
    port = _PORTS[(31 * job + step) % len(_PORTS)]
    environ["MASTER_PORT"] = environ.get("MASTER_PORT") or str(port)


def _tasks_per_node(text: str) -> list[int]:
    """Number of tasks on each node of a step: ``2(x3),1`` → 2, 2, 2, 1."""
    counts = []
    for item in text.split(","):
        count, _, times = item.partition("(x")
        counts += [int(count)] * int(times.removesuffix(")") or 1)
    return counts


def first_host(nodes: str) -> str:
    """First host of a Slurm node list: ``rack[0-3]n[07,09],login`` → ``rack0n07``.

    ``scontrol show hostnames`` does the same, but is often missing inside containers.
    """
    # A comma outside brackets ends the name; of each bracket the first number counts.
    name = re.match(r"(?:\[[^]]*\]|[^,\[])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", name[0]) if name else ""
