"""Signals that stop training.

After the first SIGINT, SIGTERM or SIGHUP, training finishes its current update, saves a checkpoint
and raises ``StoppedError`` (see ``Trainer._stop``); a validation is interrupted immediately
(``Signals.interrupting``). The second signal has the system's default effect: it ends the process.
Of several ranks it is ignored: Slurm and systemd signal all processes, and a launcher forwards to
its workers what it received itself; it kills those that do not end in time.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from transformer_mt.distributed.environment import env_size

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(eq=False)  # not frozen: contextlib sets the traceback of an exception that passes it
class StoppedError(Exception):
    """A signal stopped training; the latest update is in a checkpoint."""

    signal: int


class Signals:
    """Handler that remembers the first signal.

    Args:
        handled: Numbers of the handled signals.
    """

    def __init__(self, handled: Sequence[int]) -> None:
        self._handled = handled
        self.received: int | None = None
        """Number of the first signal."""
        self._interrupting = False

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

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Handles the first signal, and sets the effect of further ones."""
        self.received = number
        for handled in self._handled:
            signal.signal(handled, signal.SIG_IGN if env_size() > 1 else signal.SIG_DFL)
        if self._interrupting:
            raise StoppedError(number)


@contextmanager
def handle_signals() -> Iterator[Signals]:
    """Installs the handler, and restores the previous ones at the end.

    Only the main thread gets signals: in another one, as of a notebook, nothing is installed.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = list(_HANDLED if in_main_thread else ())
    if in_main_thread and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        handled.remove(signal.SIGHUP)  # nohup: closing the terminal must not stop the run
    signals = Signals(handled)
    previous = {number: signal.signal(number, signals.receive) for number in handled}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
