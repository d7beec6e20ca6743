"""Progress of long work: a bar on a terminal, otherwise log lines."""

import logging
import sys
import time
from typing import Self

from tqdm import tqdm

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two log lines."""


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
            left = f", {tqdm.format_interval((self._total - done) / rate)} left"
        unit = self._unit
        log.info("  %s: %s %s, %s %s/s%s", self._action, counts, unit, f"{rate:,.0f}", unit, left)
