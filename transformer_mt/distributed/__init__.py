"""Ranks, devices, collectives and torchrun; no other package uses torch.distributed.

A single process is the trivial case: each collective returns its input.
"""

import os

LAUNCHER = "TRANSFORMER_MT_LAUNCHER"
"""Environment variable with the process id of mt-train in the place of torchrun."""


def is_launched() -> bool:
    """Whether torchrun, or a launcher with the same variables, has started this process."""
    return "WORLD_SIZE" in os.environ


def current_rank() -> int:
    """Rank of this process."""
    return int(os.environ.get("RANK", 0))
