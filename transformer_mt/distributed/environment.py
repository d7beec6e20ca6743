"""Rank and number of the processes of a job, from torchrun's environment variables."""

import os


def is_launched() -> bool:
    """Whether torchrun, or a launcher with the same variables, has started this process."""
    return "WORLD_SIZE" in os.environ


def current_rank() -> int:
    """Rank of this process."""
    return int(os.environ.get("RANK", 0))


def num_ranks() -> int:
    """Number of ranks."""
    return int(os.environ.get("WORLD_SIZE", 1))
