"""Launches worker processes on this machine, with torch's elastic launcher, and restarts them."""

import ctypes
import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from transformer_mt.distributed.failures import LostRankError, is_transient, propagate_errors
from transformer_mt.errors import InputError, format_os_error
from transformer_mt.files import read_json

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that torch's launcher forwards to the workers."""


def launch(
    worker: Callable[..., object],
    args: tuple[object, ...],
    processes: int,
    restarts: int = 0,
    progress: Callable[[], object] = lambda: None,
    timeout_minutes: float = 10.0,
) -> None:
    """Runs ``worker(*args)`` in several processes on this machine.

    All workers are restarted after a transient failure: one was killed (for example by the kernel
    when memory ran out), hangs, or lost its GPU. They are not restarted after an exception, since
    bad input and bugs would fail again, nor after SIGINT or SIGTERM, which are forwarded to the
    workers to let them write a checkpoint.

    Args:
        worker: Module-level function, which new processes can import.
        args: Arguments of the worker.
        processes: Number of workers.
        restarts: Maximum number of restarts in a row without progress.
        progress: Returns a value that changes with each checkpoint.
        timeout_minutes: How long the workers wait for each other when they start.

    Raises:
        InputError: A worker raised it, or workers were killed or lost too often.
        SystemExit: A worker exited, or a signal ended all.
    """
    elastic = "torch.distributed.elastic"
    for name in (elastic, f"{elastic}.agent.server.api", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Time to write a checkpoint to a slow file system; torch 2.11 ignores it and waits 30 seconds.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "100")
    used, last_progress = 0, progress()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        while True:
            try:
                return _run(worker, args, processes, timeout_minutes)
            except LostRankError as lost:
                if progress() != last_progress:
                    used, last_progress = 0, progress()
                if not restarts:
                    raise
                if used == restarts:
                    raise LostRankError(
                        f"{lost}; gave up after {restarts} restart(s) without a new checkpoint"
                    ) from None
                used += 1
                what = f"restart {used} of {restarts} without a new checkpoint"
                log.warning("%s; restarting all %d workers (%s)", lost, processes, what)
    except SignalException as stopped:
        raise SystemExit(128 + stopped.sigval) from None
    finally:  # torch's launcher replaces them permanently
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run(
    worker: Callable[..., object],
    args: tuple[object, ...],
    processes: int,
    timeout_minutes: float,
) -> None:
    """Runs the workers once; raises ``LostRankError`` if a restart may help."""
    with TemporaryDirectory(prefix="mt-workers-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            # Under nohup SIGHUP is ignored: closing the terminal must not stop the run.
            signals_to_handle=",".join(
                number.name for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN
            ),
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, _rank)(os.getpid(), timeout_minutes, worker, *args)
        except ChildFailedError as failed:
            raise _cause(failed, Path(logs)) from None


def _rank(
    launcher: int, timeout_minutes: float, worker: Callable[..., object], *args: object
) -> None:
    # Ctrl-C reaches only the launcher, which forwards it: a worker receives it once.
    os.setsid()
    _end_with(launcher)
    with propagate_errors(timeout_minutes):
        try:
            worker(*args)
        except LostRankError:
            raise
        except (OSError, InputError) as error:  # one line; _cause recognises InputError by name
            line = format_os_error(error) if isinstance(error, OSError) else str(error)
            raise InputError(line) from error


def _end_with(launcher: int) -> None:
    """Makes the kernel kill this process when the launcher ends, even by SIGKILL.

    The launcher holds the lock of the run folder; a worker that outlived it would write to the
    folder at the same time as the next run.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != launcher:  # it has already ended
            os._exit(1)


def _cause(failed: ChildFailedError, logs: Path) -> BaseException:
    """The exception to raise for failed workers; ``LostRankError`` if a restart may help."""
    rank, failure = failed.get_first_failure()
    reports = []
    for path in logs.rglob("error.json"):
        with suppress(OSError, ValueError):  # truncated
            reports.append(read_json(path, {"message": dict})["message"])
    for report in reports:  # usually one: see propagate_errors
        name, _, text = report["message"].partition(": ")
        if name == InputError.__name__:
            return InputError(text)
        if not is_transient(name, text):
            print(report["extraInfo"]["py_callstack"], file=sys.stderr, end="")
            return SystemExit(1)
    if -failure.exitcode in (signal.SIGINT, signal.SIGTERM):  # before it handled signals
        return SystemExit(128 - failure.exitcode)
    if failure.exitcode < 0:
        name = failure.signal_name()
        advice = ", possibly because memory ran out" if name == "SIGKILL" else ""
        return LostRankError(f"worker {rank} (process {failure.pid}) was killed by {name}{advice}")
    if reports:
        return LostRankError(reports[0]["message"].partition(": ")[2].partition("\n")[0])
    if failure.exitcode == os.EX_TEMPFAIL:
        return LostRankError(f"worker {rank} exited with status {failure.exitcode}")
    return SystemExit(failure.exitcode)
