"""Ranks that are forked from their launcher, and so need not import PyTorch again."""

import gc
import signal
import socket
from functools import partial
from importlib import import_module

import pytest

launch = import_module("transformer_mt.distributed.launcher")
_CONFIG, _RANK = launch.LaunchConfig, launch._rank


def _forked(*args: object) -> None:
    gc.freeze()  # stores of earlier launches have threads, and are not to be collected without
    # A new process would not have the signal handlers of the launcher.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    _RANK(*args)


def free_port() -> int:
    """A port at which ranks can meet."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
    return port


def fork_ranks(patch: pytest.MonkeyPatch) -> None:
    """Lets ``distributed.launch`` fork its workers."""
    patch.setattr(launch, "LaunchConfig", partial(_CONFIG, start_method="fork"))
    patch.setattr(launch, "_rank", _forked)
