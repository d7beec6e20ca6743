"""Rank and number of the processes of a job, from torchrun's environment variables."""

import os
from typing import Any, TypeVar

T = TypeVar("T")


def is_launched() -> bool:
    """Whether torchrun, or a launcher with the same variables, has started this process."""
    return "WORLD_SIZE" in os.environ


def current_rank() -> int:
    """Rank of this process."""
    return int(os.environ.get("RANK", 0))


def num_ranks() -> int:
    """Number of ranks."""
    return int(os.environ.get("WORLD_SIZE", 1))


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
