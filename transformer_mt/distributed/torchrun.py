"""Training in several processes on this machine, which torchrun starts, watches and ends."""

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.run import main

from transformer_mt.distributed import LAUNCHER
from transformer_mt.kernels import hardware

__all__ = ["record", "torchrun"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that torchrun forwards to its workers."""


def torchrun(command: Sequence[str], processes: int) -> None:
    """Becomes torchrun until all workers have ended.

    ``PET_MAX_RESTARTS`` and the other variables of torchrun set its options.

    Args:
        command: What each worker runs: a script or ``-m`` and a module, and arguments.
        processes: Number of workers.

    Raises:
        SystemExit: A worker failed, which torchrun has reported, or a signal ended all.
    """
    threads = max(1, hardware.num_threads() // processes)  # torchrun itself would set 1
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    # Time to write a checkpoint to a slow file system; torch 2.11 ignores it and waits 30 seconds.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "100")
    # Under nohup SIGHUP is ignored: closing the terminal must not stop the run.
    forwarded = [n.name for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN]
    os.environ[LAUNCHER] = str(os.getpid())
    options = [f"--nproc-per-node={processes}", f"--signals-to-handle={','.join(forwarded)}"]
    try:
        main(["--standalone", "--local-addr=localhost", *options, *command])
    except ChildFailedError as failed:
        print(failed, file=sys.stderr)
        raise SystemExit(1) from None
    except SignalException as stopped:
        raise SystemExit(128 + stopped.sigval) from None
