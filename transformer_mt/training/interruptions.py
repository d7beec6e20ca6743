"""Signals that stop training.

After the first SIGINT, SIGTERM or SIGHUP, training finishes its current update, saves a checkpoint
and raises ``StoppedError`` (``Trainer._loop``); a validation is interrupted immediately
(``Signals.interrupting``). A second signal has the system's default effect: it ends the process.
With several ranks, later signals are ignored: Slurm and systemd signal all processes, and torchrun
forwards to its workers what it received itself; it kills those that do not end in time. If torchrun
itself is killed (``World.is_orphaned``), its workers stop as after SIGTERM.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

log = logging.getLogger(__name__)


@dataclass(eq=False)  # not frozen: contextlib sets the traceback of an exception that passes it
class StoppedError(Exception):
    """A signal stopped training; the latest update is in a checkpoint."""

    signal: int


class Signals:
    """Context that remembers the first signal, and restores the handlers at its end.

    Only the main thread gets signals: in any other, such as a notebook's, no handler is installed.

    Args:
        has_ranks: Whether this is one of several ranks.

    Attributes:
        received: Number of the first signal.
    """

    def __init__(self, has_ranks: bool = False) -> None:
        self._second = signal.SIG_IGN if has_ranks else signal.SIG_DFL
        self.received: int | None = None
        self._interrupting = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # nohup ignores SIGHUP: closing the terminal must not stop the run.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        for handled in self._previous:
            signal.signal(handled, self._second)
        if self._interrupting:
            raise StoppedError(number)
        # In a thread, as the signal may have interrupted a write to the same stream.
        message = "received %s: stopping after this update; a checkpoint is saved"
        name = signal.Signals(number).name
        threading.Thread(target=log.info, args=(message, name)).start()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Lets a signal raise ``StoppedError`` inside this context, for work that may be lost."""
        if self.received is not None:
            raise StoppedError(self.received)
        self._interrupting = True
        try:
            yield
        finally:
            self._interrupting = False
