"""Ranks, devices, launching and collectives; no other package uses torch.distributed.

A single process is the trivial case: each collective returns its input.
"""

from transformer_mt.distributed.environment import (
    env_local_rank,
    env_local_size,
    env_rank,
    env_size,
    set_ranks_from_slurm,
    under_launcher,
)
from transformer_mt.distributed.failures import LostRankError, propagate_errors
from transformer_mt.distributed.launch import launch
from transformer_mt.distributed.world import World, join, pick_device

__all__ = [
    "LostRankError",
    "World",
    "env_local_rank",
    "env_local_size",
    "env_rank",
    "env_size",
    "join",
    "launch",
    "pick_device",
    "propagate_errors",
    "set_ranks_from_slurm",
    "under_launcher",
]
