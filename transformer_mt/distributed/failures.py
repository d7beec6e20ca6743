"""One readable report for the failure of many ranks."""

import atexit
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from itertools import count
from typing import NoReturn
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transformer_mt.distributed.environment import env_rank, env_size, place
from transformer_mt.errors import InputError

log = logging.getLogger(__name__)

_OF_A_GPU = re.compile(r"CUDA (driver )?error: |Triton Error \[CUDA\]: ")
"""How an error of CUDA begins that is a RuntimeError like others: its driver's, its libraries'."""
_ITS_OWN_MISTAKE = re.compile(r"assert|illegal|misaligned|invalid|memory$|resource|alloc", re.I)

# How long a rank that suffers from another's end stays, so that the launcher sees that end first:
# torch's looks ten times a second.
_GRACE_SECONDS = 1.0
_CONNECT = timedelta(minutes=10)
"""From the start of the first process to that of the last, on another node."""

_SILENCE = timedelta(seconds=10)
_GLANCE_SECONDS = 0.05

_groups = count()


class MachineError(InputError):
    """A rank has lost another one, which died or hangs: a new start may help."""


@cache
def meeting_point() -> Store:
    """Where all ranks reach each other before there is a process group, and after one broke.

    It is empty at first. torchrun's store, which it is a part of, is not: a new start of the
    ranks finds there what the last one left, addresses and failures.

    Raises:
        InputError: Rank 0, or torchrun's process on its node, cannot be reached, or not all ranks
            have been started.
    """
    try:
        store, rank, size = next(rendezvous("env://", timeout=_CONNECT))
        assert isinstance(store, Store)
        return PrefixStore(name_of_start(store, rank, size, _CONNECT), store)
    except (RuntimeError, ValueError) as error:
        where = ":".join(os.environ.get(key, f"no {key}") for key in ("MASTER_ADDR", "MASTER_PORT"))
        raise InputError(f"{place()}, cannot meet the others at {where}: {_core(error)}") from None


def name_of_start(store: Store, rank: int, size: int, patience: timedelta) -> str:
    """A name that all ranks of this start agree upon, and no other start has.

    Nothing that torchrun tells its workers is such a name: ``TORCHELASTIC_RESTART_COUNT`` differs
    between nodes, each of which counts its own failures. So each rank calls itself by a random
    name, and rank 0 answers to all of them, left by whomever, with its own, until all others have
    read theirs.

    Args:
        store: Shared with the other ranks of this start, and with those of earlier ones, which
            have all ended.
        rank: This process's.
        size: How many ranks there are.
        patience: How long to wait for the others.

    Raises:
        RuntimeError: They have not come.
    """
    own = uuid4().hex
    if rank > 0:
        store.set(f"call {rank}", own)
        _wait(lambda: store.check([f"answer {own}"]), patience, "rank 0 has not come")
        name: str = store.get(f"answer {own}").decode()
        store.add(f"heard {name}", 1)
        return name
    calls = [f"call {other}" for other in range(1, size)]

    def all_have_heard() -> bool:
        for call in calls:
            if store.check([call]):
                store.set(f"answer {store.get(call).decode()}", own)
        return store.add(f"heard {own}", 0) == len(calls)

    _wait(all_have_heard, patience, f"not all {size} ranks have come")
    return own


def _wait(done: Callable[[], bool], patience: timedelta, complaint: str) -> None:
    # By glances and not in store.wait, where no Ctrl-C would be heard.
    deadline = time.monotonic() + patience.total_seconds()
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint} within {patience}")
        time.sleep(_GLANCE_SECONDS)


def store_for_group(patience: timedelta) -> Store:
    """Waits until all ranks are here, then gives a store for a new process group.

    With several nodes there is no limit: one may still prepare data when another has done so, which
    is work and no hang. On a single one all prepare together.

    Raises:
        MachineError: Another rank has failed, or does not come.
    """
    single_node = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    store = PrefixStore(f"group {next(_groups)}", meeting_point())
    begun, told = time.monotonic(), False
    here = store.add("here", 1)
    while here < env_size():
        if meeting_point().check(["failure"]):
            raise MachineError(f"{place()}: another rank failed before all were ready")
        waited = timedelta(seconds=time.monotonic() - begun)
        if single_node and waited > patience:
            raise MachineError(f"{place()}: only {here} ranks were ready within {patience}")
        if env_rank() == 0 and not told and waited > _SILENCE:
            log.info("waiting for all ranks: %d of %d are ready", here, env_size())
            told = True
        time.sleep(0.1)
        here = store.add("here", 0)
    return store


def may_pass(name: str, text: str) -> bool:
    """Whether a new start may mend an error, of this type and message.

    A GPU that fell off its bus ends in an error of CUDA's; so does a kernel's own mistake, or
    memory that does not suffice, which come again.
    """
    if name == MachineError.__name__:
        return True
    line = text.partition("\n")[0]  # below it torch tells of assertions whatever has happened
    of_a_gpu = name == torch.AcceleratorError.__name__ or (
        name == RuntimeError.__name__ and _OF_A_GPU.match(line) is not None
    )
    return of_a_gpu and not _ITS_OWN_MISTAKE.search(line)


@contextmanager
def one_report() -> Iterator[None]:
    """Around all that a rank does: of several ranks that fail, the first one says why.

    Its exception passes on. The others, which as a rule fail because of it, leave without a word;
    one that fails for a reason of its own prints a line. The exit status is EX_TEMPFAIL where a new
    start may help, that of a rank that stopped where one did, else 1.
    """
    if env_size() == 1:
        yield
        return
    meeting_point()  # before anything can fail: rank 0 may be the one that serves it
    try:
        yield
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
        _first_word(status, f"stopped with status {status}")
        atexit.register(_leave, status)
        raise
    except Exception as caught:
        error: Exception = caught
        if _is_lost_contact(caught):
            error = MachineError(f"{place()}, lost contact with another rank: {_core(caught)}")
        name = type(error).__name__
        status = os.EX_TEMPFAIL if may_pass(name, str(error)) else 1
        reason = f"{name}: {error}"
        first_status, first_rank, first_reason = _first_word(status, reason)
        atexit.register(_leave, first_status)
        lost = isinstance(error, MachineError)
        if first_rank == env_rank():
            if not isinstance(error, InputError):
                error.add_note(place())
            if lost:
                time.sleep(_GRACE_SECONDS)
            raise error from (None if lost else caught.__cause__)
        if not lost and reason != first_reason:
            print(f"{place()}, failed as well: {_core(reason)}", file=sys.stderr)
        time.sleep(2 * _GRACE_SECONDS)
        raise SystemExit(first_status) from None


def _first_word(status: int, reason: str) -> tuple[int, int, str]:
    """Status, rank and reason of the rank that failed first: this one's, if no other has."""
    word = json.dumps([status, env_rank(), reason])
    with suppress(RuntimeError):  # who serves the store may be gone
        word = meeting_point().compare_set("failure", "", word).decode()
    first_status, rank, first_reason = json.loads(word)
    return first_status, rank, first_reason


def _is_lost_contact(error: Exception) -> bool:
    # gloo's are bare RuntimeErrors, which begin with a path into its source.
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo/transport/" in str(error)
    )


def _core(error: object) -> str:
    """The first sentence of torch's message, without the place in torch that it came from."""
    line = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0])
    return line.partition(". ")[0]


def _leave(status: int) -> NoReturn:
    # No destructor runs: NCCL's would wait for the dead, and gloo's threads may abort.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
