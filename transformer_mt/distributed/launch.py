"""Workers on this machine, by torch's elastic launcher; they are started anew when one dies."""

import ctypes
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from transformer_mt.distributed.failures import MachineError, may_pass, one_report
from transformer_mt.errors import InputError, format_os_error

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Failure:
    """Why workers ended."""

    reason: str
    error: BaseException
    """What the caller should get."""
    passing: bool = False
    """Whether a new start may help."""


def launch(
    worker: Callable[..., None],
    args: tuple[object, ...],
    processes: int,
    restarts: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Runs ``worker(*args)`` in several processes on this machine.

    When one is killed (by the kernel for memory, by a broken driver, by a person), loses the others
    (one of them hangs) or its GPU, all are started anew. Not so when a worker raises an exception:
    bad input stays bad, and a bug is better seen at once, with its traceback, than repeated. Nor
    when one was asked to end. SIGINT and SIGTERM are passed on to the workers, which then have time
    to write a checkpoint.

    Args:
        worker: A function of a module, so that a new process finds it.
        args: Its arguments.
        processes: How many workers.
        restarts: New starts in a row that may come to nothing.
        progress: What is safe by now. When it has changed since the last start, counting begins
            anew: days on machines that fail now and then are no reason to give up, a failure that
            returns before the next checkpoint is.

    Raises:
        InputError: A worker raised it, or one was killed or lost too often.
        SystemExit: A worker exited, or a signal ended them all.
    """
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # For a checkpoint on a slow file system. torch 2.11 does not know it, and waits 30 seconds.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "100")
    used, safe = 0, progress()
    with _handlers_kept():
        try:
            while failure := _run(worker, args, processes):
                if progress() != safe:
                    used, safe = 0, progress()
                if not failure.passing or used == restarts:
                    break
                used += 1
                log.warning(
                    "%s: %s; all %d workers are started anew (%d of %d without a new checkpoint)",
                    time.strftime("%Y-%m-%d %H:%M:%S"),
                    failure.reason,
                    processes,
                    used,
                    restarts,
                )
        except SignalException as stopped:
            raise SystemExit(128 + stopped.sigval) from None
    if failure and failure.passing and restarts:
        raise InputError(f"{failure.reason}; {restarts} new starts in a row came to no checkpoint")
    if failure:
        raise failure.error


def _run(worker: Callable[..., None], args: tuple[object, ...], processes: int) -> _Failure | None:
    with TemporaryDirectory(prefix="mt-workers-") as logs:
        # Workers find each other on this machine only.
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, _rank)(os.getpid(), worker, *args)
        except ChildFailedError as failed:
            return _cause(failed, Path(logs))
    return None


def _rank(launcher: int, worker: Callable[..., None], *args: object) -> None:
    # Ctrl-C reaches the launcher only, which passes it on: a worker gets it once.
    os.setsid()
    _end_with(launcher)
    with one_report():
        try:
            worker(*args)
        except MachineError:
            raise
        except (OSError, InputError) as error:  # a line each; _cause knows errors by these names
            line = format_os_error(error) if isinstance(error, OSError) else str(error)
            raise InputError(line) from error


def _end_with(launcher: int) -> None:
    """Has the kernel kill this process when the launcher is gone, be it by kill -9.

    The launcher holds the lock of the run's folder: whoever outlives it would write beside the
    next run.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != launcher:  # it was gone already
            os._exit(1)


def _cause(failed: ChildFailedError, logs: Path) -> _Failure:
    rank, failure = failed.get_first_failure()
    reports = []
    for path in logs.rglob("error.json"):
        with suppress(ValueError):  # cut off in the midst of writing
            reports.append(json.loads(path.read_text())["message"])
    for report in reports:  # one as a rule: see one_report
        name, _, text = report["message"].partition(": ")
        if name == InputError.__name__:
            return _Failure(text, InputError(text))
        if not may_pass(name, text):
            print(report["extraInfo"]["py_callstack"], file=sys.stderr, end="")
            return _Failure(name, SystemExit(1))
    if failure.exitcode < 0:
        name = failure.signal_name()
        reason = f"worker {rank} (process {failure.pid}) was killed by {name}"
        if -failure.exitcode in (signal.SIGINT, signal.SIGTERM):  # asked, before it could listen
            return _Failure(reason, SystemExit(128 - failure.exitcode))
        if name == "SIGKILL":
            reason += ", as the system does when memory runs out"
        return _Failure(reason, InputError(reason), passing=True)
    for report in reports:
        reason = report["message"].partition(": ")[2].partition("\n")[0]
        return _Failure(reason, InputError(reason), passing=True)
    reason = f"worker {rank} ended with status {failure.exitcode}"
    if failure.exitcode == os.EX_TEMPFAIL:
        return _Failure(reason, InputError(reason), passing=True)
    return _Failure(reason, SystemExit(failure.exitcode))


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Gives the process its signal handlers back: torch's launcher takes them and keeps them."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
