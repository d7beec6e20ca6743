"""Rank and number of processes of a job, from the environment variables of torchrun."""

import math
import os
import socket
from dataclasses import dataclass
from typing import Any, TypeVar

from transformer_mt.errors import InputError

T = TypeVar("T")

_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


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


@dataclass(frozen=True)
class LauncherEnv:
    """What a launcher such as torchrun says in the environment; without one, there is one rank."""

    present: bool = False
    """Whether RANK and WORLD_SIZE are set, so that a launcher started this process."""
    rank: int = 0
    """Rank of this process."""
    size: int = 1
    """Number of ranks."""
    local_rank: int = 0
    """Rank of this process on its machine, which is the index of its GPU."""
    local_size: int = 1
    """Number of ranks on this machine; 1 if unknown."""

    @classmethod
    def read(cls) -> "LauncherEnv":
        """Reads the variables; a single rank needs no others.

        Raises:
            InputError: One of them is not a number, or out of range.
        """
        if not (os.environ.get("RANK") and os.environ.get("WORLD_SIZE")):
            return cls()
        size = _number("WORLD_SIZE", 1, at_least=1)
        if size == 1:
            return cls(present=True)
        local = _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1, at_least=1)
        return cls(True, _number("RANK", 0, below=size), size, *local)

    @property
    def on_one_node(self) -> bool:
        """Whether all ranks are on this machine."""
        return self.local_size == self.size

    def __str__(self) -> str:
        """Rank and host of this process, for error messages."""
        return f"rank {self.rank} of {self.size}, on {socket.gethostname()}"


def _number(name: str, default: int, *, at_least: int = 0, below: float = math.inf) -> int:
    """Value of a variable of the launcher; the default if it is empty or not set."""
    text = os.environ.get(name) or str(default)
    if not (text.isdecimal() and at_least <= int(text) < below):
        found = " ".join(f"{key}={value}" for key in _LAUNCHER if (value := os.environ.get(key)))
        raise InputError(
            f"{name}={text} is not valid ({found}): start all ranks with one launcher, such as "
            "torchrun, or unset RANK and WORLD_SIZE to run a single process"
        )
    return int(text)
