"""Error propagation between ranks: a failed run ends with one report, of the first failure."""

import atexit
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transformer_mt.distributed.environment import LauncherEnv
from transformer_mt.errors import InputError

log = logging.getLogger(__name__)

_CUDA_ERROR = re.compile(r"CUDA (driver )?error: |Triton Error \[CUDA\]: ")
"""Prefix of CUDA errors that torch raises as a plain RuntimeError: of the driver, of libraries."""
_PROGRAM_ERROR = re.compile(
    r"assert|illegal|misaligned|invalid|memory$|resource|alloc|kernel image|PTX|symbol|supported",
    re.I,
)

_GRACE_SECONDS = 1.0
"""Time for which a rank outlives the failure of another one, so that a launcher sees that failure
first; torchrun polls ten times per second."""
_LOG_AFTER = timedelta(seconds=10)

_group_numbers = count()


class LostRankError(InputError):
    """Another rank died or hangs: a restart may help."""


_store: list[Store] = []
"""The store of ``shared_store``."""


def shared_store(timeout: timedelta) -> Store:
    """Key-value store of all ranks of this start; needs no process group and outlives it.

    It is empty initially. torchrun's store, with the failures of earlier starts, is the same for
    all starts, so each restart has its own keys in it. Later calls return the same store.

    Args:
        timeout: Maximum time of waiting for the process that serves the store.

    Raises:
        InputError: That process, rank 0 or torchrun, cannot be reached, or torchrun would restart
            the workers of several nodes, each of which counts its own restarts.
    """
    if _store:
        return _store[0]
    start, env = "", LauncherEnv.read()
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
        if not env.on_one_node and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
            raise InputError(
                "torchrun --max-restarts on several nodes needs --rdzv-backend=c10d and "
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, see scripts/README.md"
            )
    try:
        store, *_ = next(rendezvous("env://", timeout=timeout))
    except (RuntimeError, ValueError) as error:
        where = ":".join(
            os.environ.get(key) or f"no {key}" for key in ("MASTER_ADDR", "MASTER_PORT")
        )
        raise InputError(
            f"{env}: cannot reach the other ranks at {where} ({_summary(error)}): "
            "check MASTER_ADDR, MASTER_PORT and the network"
        ) from None
    _store.append(PrefixStore(f"start {start}", store))
    return _store[0]


def process_group_store(timeout: timedelta) -> Store:
    """Waits until all ranks are ready, and returns a store for a new process group.

    The timeout applies to a single node only, where all ranks prepare data together. Of several
    nodes one may still prepare data when the others are ready.

    Raises:
        LostRankError: Another rank failed or is not ready in time.
    """
    env = LauncherEnv.read()
    store = PrefixStore(f"group {next(_group_numbers)}", shared_store(timeout))
    started, logged = time.monotonic(), False
    ready = store.add("ready", 1)
    while ready < env.size:
        if shared_store(timeout).check(["failure"]):
            raise LostRankError(f"{env}: another rank failed before all were ready")
        waited = timedelta(seconds=time.monotonic() - started)
        if env.on_one_node and waited > timeout:
            raise LostRankError(f"{env}: only {ready} ranks were ready within {timeout}")
        if env.rank == 0 and not logged and waited > _LOG_AFTER:
            log.info("waiting for all ranks: %d of %d are ready", ready, env.size)
            logged = True
        time.sleep(0.1)
        ready = store.add("ready", 0)
    return store


def is_transient(name: str, message: str) -> bool:
    """Whether a restart may help against an error with this type name and message.

    It may after a lost rank and after CUDA errors of hardware and driver. Errors of a kernel, and
    too little memory, would occur again.
    """
    if name == LostRankError.__name__:
        return True
    line = message.partition("\n")[0]  # the lines below it mention assertions in any case
    is_cuda_error = name == torch.AcceleratorError.__name__ or (
        name == RuntimeError.__name__ and _CUDA_ERROR.match(line) is not None
    )
    return is_cuda_error and not _PROGRAM_ERROR.search(line)


@contextmanager
def propagate_errors(timeout_minutes: float = 10.0) -> Iterator[None]:
    """Context around all work of one of several ranks: the first failure ends them all.

    The exception of the first rank to fail is raised there. The other ranks, which usually fail as
    a consequence, exit silently. The exit status of all is that of the first: EX_TEMPFAIL if a
    restart may help, the status of a SystemExit, else 1.

    Args:
        timeout_minutes: How long to wait for the start of all ranks.
    """
    env = LauncherEnv.read()
    # Before anything can fail, since rank 0 may serve it.
    shared_store(timedelta(minutes=timeout_minutes))
    try:
        yield
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
        _report_failure(status, env.rank)
        atexit.register(_exit_immediately, status)
        raise
    except Exception as caught:
        error: Exception = caught
        if _is_lost_connection(caught):
            reason = f"lost the connection to another rank: {_summary(caught)}"
            error = LostRankError(f"{env}: {reason}")
        name = type(error).__name__
        status = os.EX_TEMPFAIL if is_transient(name, str(error)) else 1
        first_status, first_rank = _report_failure(status, env.rank)
        atexit.register(_exit_immediately, first_status)
        lost = isinstance(error, LostRankError)
        if first_rank == env.rank:
            if not isinstance(error, InputError):
                error.add_note(str(env))
            if lost:
                time.sleep(_GRACE_SECONDS)
            raise error from (None if lost else caught.__cause__)
        time.sleep(2 * _GRACE_SECONDS)
        raise SystemExit(first_status) from None


def _report_failure(status: int, rank: int) -> tuple[int, int]:
    """Records a failure unless there is one; returns exit status and rank of the first."""
    first = f"{status} {rank}"
    with suppress(RuntimeError):  # the process that serves the store may be gone
        first = _store[0].compare_set("failure", "", first).decode()
    first_status, first_rank = map(int, first.split())
    return first_status, first_rank


def _is_lost_connection(error: Exception) -> bool:
    # gloo raises plain RuntimeErrors, which begin with a path in its source.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo/transport/" in str(error)
    )


def _summary(error: object) -> str:
    """NCCL's reason, or the first sentence of an error without the source location before it."""
    if reason := str(error).partition("Last error:\n")[2].strip():
        return reason.replace("\n", "; ")
    line = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0])
    return line.partition(". ")[0]


def _exit_immediately(status: int) -> NoReturn:
    # Without destructors: NCCL's would wait for lost ranks, and threads of gloo may abort.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
