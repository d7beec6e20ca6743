"""What ends a run early: signals, missing memory, and numbers that are not finite.

After the first SIGINT, SIGTERM or SIGHUP, training finishes its current update, saves a checkpoint
and raises ``StoppedError`` (see ``Trainer._stop``); a validation is interrupted immediately
(``Signals.interrupting``). The second signal has the system's default effect: it ends the process.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from transformer_mt.batch import Batch
from transformer_mt.errors import InputError

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ADVICE = (
    "lower the learning rate or lengthen the warm-up (schedule), clip the gradient "
    "(train.clip_norm), or delete the latest checkpoints to resume from an earlier one"
)


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
        """Handles a signal, and resets all handlers to the system's defaults."""
        self.received = number
        for handled in self._handled:
            signal.signal(handled, signal.SIG_DFL)
        if self._interrupting:
            raise StoppedError(number)


@contextmanager
def handle_signals() -> Iterator[Signals]:
    """Installs the handler; restores the previous ones unless a signal came.

    Only the main thread gets signals: in another one, as of a notebook, nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Signals(())
        return
    # nohup ignores SIGHUP: closing the terminal must not stop the run.
    handled = [n for n in _HANDLED if (n, signal.getsignal(n)) != (signal.SIGHUP, signal.SIG_IGN)]
    signals = Signals(handled)
    previous = {number: signal.signal(number, signals.receive) for number in handled}
    try:
        yield signals
    finally:
        if signals.received is None:
            for number, handler in previous.items():
                signal.signal(number, handler)


def out_of_memory_error(
    micro_batches: Sequence[Batch], max_tokens: int, max_length: int
) -> InputError:
    """The error, with advice, for a device that is out of memory.

    Args:
        micro_batches: The batches at work.
        max_tokens: ``train.max_tokens_per_device``.
        max_length: ``data.cleaning.max_tokens``, a lower bound of ``max_tokens``.
    """
    targets = max(len(batch.tgt_out) for batch in micro_batches)
    advice = "lower data.cleaning.max_tokens, or use a smaller model"
    if max_length < max_tokens:
        less = max(max_length, min(max_tokens, targets) // 2)
        advice = f"set train.max_tokens_per_device={less}; the updates stay the same"
    return InputError(f"out of memory on a batch of {targets:,} target tokens: {advice}")


def not_finite_error(problem: str) -> InputError:
    """The error, with advice, for gradients, weights or a loss with NaN or infinity."""
    return InputError(f"{problem}: {_ADVICE}")
