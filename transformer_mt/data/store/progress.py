"""Progress of a long pass over the corpus: a bar on a terminal, otherwise periodic log lines."""

import logging
import math
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
    items: Iterable[T], action: str, count: Callable[[T], int], *, silent: bool = False
) -> Generator[T, None, None]:
    """Yields the items and reports how many pairs they hold.

    tqdm draws the bar; the log lines are ours, because without a terminal tqdm would write bars to
    log files.

    Args:
        items: Parts of the corpus.
        action: What is done with the pairs, in a word or two.
        count: Number of pairs of an item.
        silent: Whether to report nothing.
    """
    interval = math.inf if silent else _LOG_INTERVAL
    started = reported = time.perf_counter()
    pairs = 0
    with tqdm(
        desc=action,
        unit=" pairs",
        unit_scale=True,
        dynamic_ncols=True,
        disable=silent or not sys.stderr.isatty(),
    ) as bar:
        for item in items:
            yield item
            pairs += count(item)
            bar.update(count(item))
            now = time.perf_counter()
            if bar.disable and now - reported >= interval:
                reported, rate = now, pairs / (now - started)
                log.info("  %s: %s pairs, %s pairs/s", action, f"{pairs:,}", f"{rate:,.0f}")
