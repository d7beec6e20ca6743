"""The server from which commands are forked: it has imported their modules and loaded fonts.

A forked command is a process of its own, with signals and an exit status, and saves the seconds
that PyTorch and matplotlib take to start.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import pytest


def context() -> ForkServerContext:
    """The context whose processes are forked from the server."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["support.fork_server_modules"])
    with pytest.MonkeyPatch.context() as patch:  # Python 3.11 does not pass sys.path to it
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()
    return found
