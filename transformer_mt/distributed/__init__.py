"""Ranks, devices, launching and collectives: the only package that names torch.distributed.

A single process is the trivial case: every collective returns what it is given.
"""

from transformer_mt.distributed.environment import adopt_slurm_step, env_rank, under_launcher
from transformer_mt.distributed.failures import MachineError, one_report
from transformer_mt.distributed.launch import launch
from transformer_mt.distributed.world import World, join, pick_device

__all__ = [
    "MachineError",
    "World",
    "adopt_slurm_step",
    "env_rank",
    "join",
    "launch",
    "one_report",
    "pick_device",
    "under_launcher",
]
