"""The log of a command, and the progress of long work: a bar on a terminal, else log lines."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

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
    screen = logging.StreamHandler(sys.stderr)
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


class _LogFile(logging.FileHandler):
    """A log file that a full disk stops, with one warning."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._failed:
            print(
                f"warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}", file=sys.stderr
            )
        self._failed = True


class ProgressReporter:
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
        # The log lines are not tqdm's, which would write bars to log files.
        self._bar = tqdm(
            desc=action,
            total=total,
            initial=done,
            unit=f" {unit}",
            unit_scale=total is None,
            dynamic_ncols=True,
            disable=not visible or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, done: int) -> None:
        """Reports that ``done`` items are done, including those of an earlier attempt."""
        if not self._bar.disable:
            self._bar.update(done - self._bar.n)
            return
        now = time.perf_counter()
        if not self._visible or now - self._logged < _LOG_INTERVAL or done == self._initial:
            return
        self._logged, rate = now, (done - self._initial) / (now - self._started)
        counts, left = f"{done:,}", ""
        if self._total is not None:
            counts += f" of {self._total:,}"
            left = f", {self._bar.format_interval((self._total - done) / rate)} left"
        unit = self._unit
        log.info("%s: %s %s, %s %s/s%s", self._action, counts, unit, f"{rate:,.0f}", unit, left)
