"""Ranks that are forked from their launcher, and so need not import PyTorch again."""

import gc
import signal
import socket
from importlib import import_module

import pytest

launch = import_module("transformer_mt.distributed.launcher")
_CONFIG, _RANK = launch.LaunchConfig, launch._rank


def _fork_config(**settings: object) -> object:
    gc.freeze()  # stores of earlier launches have threads, and are not to be collected without
    return _CONFIG(start_method="fork", **settings)


def _forked(*args: object) -> None:
    # A new process would not have the signal handlers of the launcher.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    _RANK(*args)


def rank_environments(size: int) -> list[dict[str, str]]:
    """What torchrun gives each rank in its environment, with a port at which they can meet."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    shared |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
    return [{**shared, **dict.fromkeys(("RANK", "LOCAL_RANK"), str(i))} for i in range(size)]


def fork_ranks(patch: pytest.MonkeyPatch) -> None:
    """Lets ``distributed.launch`` fork its workers."""
    patch.setattr(launch, "LaunchConfig", _fork_config)
    patch.setattr(launch, "_rank", _forked)
