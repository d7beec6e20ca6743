"""How far a long pass over the corpus has come: a bar on a terminal, else a line now and then."""

import logging
import math
import sys
import time

from tqdm import tqdm

log = logging.getLogger(__name__)

_EVERY = 30.0
"""Seconds between two lines."""


class Progress:
    """Counts pairs.

    Args:
        doing: What is done to them, in a word or two.
        silent: Show nothing.
    """

    def __init__(self, doing: str, *, silent: bool = False):
        self._doing, self._every = doing, math.inf if silent else _EVERY
        self._pairs = 0
        self._begun = self._said = time.perf_counter()
        self._bar = tqdm(
            desc=doing,
            unit=" pairs",
            unit_scale=True,
            dynamic_ncols=True,
            disable=silent or not sys.stderr.isatty(),
        )

    def add(self, pairs: int) -> None:
        """Counts pairs that are done."""
        self._pairs += pairs
        self._bar.update(pairs)
        now = time.perf_counter()
        if self._bar.disable and now - self._said >= self._every:
            self._said = now
            rate = self._pairs / (now - self._begun)
            log.info("  %s: %s pairs, %s pairs/s", self._doing, f"{self._pairs:,}", f"{rate:,.0f}")

    def close(self) -> None:
        """Leaves the terminal to others."""
        self._bar.close()
