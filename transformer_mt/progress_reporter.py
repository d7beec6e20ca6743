"""The log of a command, and the progress of long work: a bar on a terminal, else log lines."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TextIO

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two log lines."""


@contextmanager
def log_to(file: Path | None = None, *, prefix: str = "") -> Iterator[None]:
    """Sends the package's log to standard error, and to a file in which every line has its time.

    Args:
        file: The file, whose folder is created; None for standard error alone.
        prefix: Start of every line on standard error.
    """
    screen = _Screen(sys.stderr)
    screen.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    handlers: list[logging.Handler] = [screen]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_LogFile(file, encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    package = logging.getLogger("transformer_mt")
    before = package.handlers, package.level, package.propagate
    package.handlers, package.propagate = handlers, False
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.handlers, previous, package.propagate = before
        package.setLevel(previous)
        with suppress(OSError):  # already reported
            handlers[-1].close()


class _Screen(logging.StreamHandler[TextIO]):
    """Standard error, on which lines appear above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        from tqdm import tqdm

        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


class _LogFile(logging.FileHandler):
    """A log file that a full disk stops, with one warning."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._failed:
            print(
                f"warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}", file=sys.stderr
            )
        self._failed = True


class ProgressReporter(AbstractContextManager["ProgressReporter"]):
    """Reports how many items are done, on stderr.

    Args:
        unit: What is counted, for instance ``lines``.
        action: Past participle of what is done with them.
        done: Number of items done by an earlier attempt.
        total: Number of all items; None if it is not known.
        visible: Whether anything is reported.
    """

    def __init__(
        self,
        unit: str,
        action: str,
        *,
        done: int = 0,
        total: int | None = None,
        visible: bool = True,
    ):
        from tqdm import tqdm  # which --help does not need

        self._unit, self._action, self._visible = unit, action, visible
        self._initial, self._total = done, total
        self._started = self._logged = time.perf_counter()
        # The text of the bar and of the log lines is ours; tqdm would write bars to log files.
        self._bar = tqdm(
            desc=f"{action}: {done:,} {unit}",
            total=total,
            initial=done,
            bar_format="{desc}" if total is None else "{desc} {bar}",
            dynamic_ncols=True,
            disable=not visible or not sys.stderr.isatty(),
        )

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, done: int) -> None:
        """Reports that ``done`` items are done, including those of an earlier attempt."""
        now = time.perf_counter()
        if not self._visible or done == self._initial or now == self._started:
            return
        if not self._bar.disable:
            self._bar.set_description_str(self._line(done, now), refresh=False)
            self._bar.update(done - self._bar.n)
        elif now - self._logged >= _LOG_INTERVAL:
            self._logged = now
            log.info("%s", self._line(done, now))

    def _line(self, done: int, now: float) -> str:
        """What is done, at which rate, and the time left."""
        rate, unit = (done - self._initial) / (now - self._started), self._unit
        counts, left = f"{done:,}", ""
        if self._total is not None:
            counts += f" of {self._total:,}"
            if done < self._total:
                left = f", {self._bar.format_interval((self._total - done) / rate)} left"
        return f"{self._action}: {counts} {unit}, {rate:,.0f} {unit}/s{left}"
