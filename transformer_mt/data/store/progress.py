"""Progress of a long pass over the corpus: a bar on a terminal, otherwise periodic log lines."""

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two log lines."""


def track_progress(
    items: Iterable[T], action: str, count: Callable[[T], int]
) -> Generator[T, None, None]:
    """Yields the items and reports how many pairs they hold.

    The log lines are not tqdm's, which would write bars to log files.

    Args:
        items: Parts of the corpus.
        action: Past participle of what is done with the pairs, for the messages.
        count: Returns the number of pairs of an item.
    """
    started = reported = time.perf_counter()
    pairs = 0
    no_bar = not sys.stderr.isatty()
    with tqdm(
        desc=action, unit=" pairs", unit_scale=True, dynamic_ncols=True, disable=no_bar
    ) as bar:
        for item in items:
            yield item
            pairs += count(item)
            bar.update(count(item))
            now = time.perf_counter()
            if no_bar and now - reported >= _LOG_INTERVAL:
                reported, rate = now, pairs / (now - started)
                log.info("  %s: %s pairs, %s pairs/s", action, f"{pairs:,}", f"{rate:,.0f}")
