"""Ranks: which of how many this process is, by the environment variables of torchrun or Slurm."""

import os
import re
import socket
from collections.abc import MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")

# Below the ephemeral ports of Linux, which begin at 32768.
_PORTS = range(20000, 32000)


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


def under_launcher() -> bool:
    """Whether torchrun, or anything else that sets both of its variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def env_size() -> int:
    """Number of ranks; 1 without a launcher."""
    return int(os.environ["WORLD_SIZE"]) if under_launcher() else 1


def env_rank() -> int:
    """Rank of this process; 0 without a launcher."""
    return int(os.environ.get("RANK", 0)) if env_size() > 1 else 0


def env_local_rank() -> int:
    """Rank of this process on its machine, which is the index of its GPU."""
    return int(os.environ.get("LOCAL_RANK", 0)) if env_size() > 1 else 0


def env_local_size() -> int:
    """Number of ranks on this machine; 1 if unknown."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def describe_rank() -> str:
    """Rank and host of this process, for error messages."""
    return f"rank {env_rank()} of {env_size()}, on {socket.gethostname()}"


def set_ranks_from_slurm(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets torchrun's variables in a task of ``srun --ntasks-per-node=8 mt-train …``.

    Only srun sets SLURM_STEP_NUM_TASKS; SLURM_NTASKS is also set in a batch script and in the shell
    of salloc, where this is a single process. Inside ``srun --pty bash`` it is one, too.
    """
    launched = "RANK" in environ and "WORLD_SIZE" in environ  # by a torchrun inside the step
    if launched or "SLURM_PTY_PORT" in environ or environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return
    environ.update(
        RANK=environ["SLURM_PROCID"],
        WORLD_SIZE=environ["SLURM_STEP_NUM_TASKS"],
        LOCAL_RANK=environ["SLURM_LOCALID"],
    )
    # Not SLURM_LAUNCH_NODE_IPADDR, the host of srun, which may be a login node.
    environ.setdefault("MASTER_ADDR", first_host(environ["SLURM_STEP_NODELIST"]))
    # The same for all tasks of a step, different for other steps and jobs.
    job, step = int(environ["SLURM_JOB_ID"]), int(environ["SLURM_STEP_ID"])
    environ.setdefault("MASTER_PORT", str(_PORTS[(31 * job + step) % len(_PORTS)]))


def first_host(nodes: str) -> str:
    """First host of a Slurm node list: ``rack[0-3]n[07,09],login`` → ``rack0n07``.

    ``scontrol show hostnames`` does the same, but is often missing inside containers.
    """
    # A comma outside brackets ends the name; of each bracket the first number counts.
    name = re.match(r"(?:\[[^]]*\]|[^,\[])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", name[0]) if name else ""
