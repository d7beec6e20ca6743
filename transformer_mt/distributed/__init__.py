"""Ranks, devices, launching and collectives; no other package uses torch.distributed.

A single process is the trivial case: each collective returns its input.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformer_mt.distributed.environment import (
    Ranks,
    env_local_rank,
    env_local_size,
    env_rank,
    env_size,
    set_ranks_from_slurm,
    under_launcher,
)

if TYPE_CHECKING:
    from transformer_mt.distributed.failures import LostRankError, propagate_errors
    from transformer_mt.distributed.launcher import launch
    from transformer_mt.distributed.world import World, join, pick_device

__all__ = [
    "LostRankError",
    "Ranks",
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

_MODULES = {
    "LostRankError": "failures",
    "World": "world",
    "join": "world",
    "launch": "launcher",
    "pick_device": "world",
    "propagate_errors": "failures",
}
"""What needs PyTorch, which a single process that translates with CTranslate2 does not load."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
