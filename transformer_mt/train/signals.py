"""SIGINT, SIGTERM, SIGHUP: the first ends the run in order, the second at once."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(eq=False)  # not frozen: contextlib sets the traceback of what passes it
class StoppedError(Exception):
    """A signal ended training early; the latest update is in a checkpoint."""

    signal: int


class Signals:
    """What was received, and what to do at once."""

    def __init__(self, handled: Sequence[int]) -> None:
        self._handled = handled
        self.received: int | None = None
        """The first signal."""
        self._abandon = False

    @contextmanager
    def abandoning(self) -> Iterator[None]:
        """Around work that may be thrown away: a signal raises ``StoppedError`` in its midst."""
        if self.received is not None:
            raise StoppedError(self.received)
        self._abandon = True
        try:
            yield
        finally:
            self._abandon = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        self.received = number
        for handled in self._handled:
            signal.signal(handled, signal.SIG_DFL)
        if self._abandon:
            raise StoppedError(number)


_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught() -> Iterator[Signals]:
    """Catches the signals for as long as the context lasts.

    After the first, the process is about to end: signals keep the system's own meaning, so that
    the second one ends it at once wherever it is by then.
    """
    # Under nohup a terminal that is closed ends nothing.
    handled = [n for n in _HANDLED if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
    signals = Signals(handled)
    old = {number: signal.signal(number, signals.receive) for number in handled}
    try:
        yield signals
    finally:
        if signals.received is None:
            for number, handler in old.items():
                signal.signal(number, handler)
