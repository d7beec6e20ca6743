"""Progress of a run: progress bar and log lines, ``metrics.jsonl``, and the trackers."""

import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.validation import ValidationResult

log = logging.getLogger(__name__)

_LOG_WIDTH = 80
"""Maximum number of characters in a line of the log."""
_LONG_RUN_SECONDS = 7 * 24 * 3600
"""A run that would take longer is announced after its third update."""
_LABELS = {"bleu": "BLEU", "chrf": "chrF2"}
"""Names of validation metrics in the log, where they are not those in ``metrics.jsonl``."""


class Monitor:
    """Records a run; only the main rank has one.

    Args:
        run_dir: Run folder.
        steps_done: Updates done so far; records of later ones are removed.
        max_steps: Number of updates of the run.
        peak_rate: Target tokens per second at which model FLOPs utilisation is 1, if known.
        trackers: Record the run as well; the caller closes them.
    """

    def __init__(
        self,
        run_dir: Path,
        steps_done: int,
        max_steps: int,
        peak_rate: float | None = None,
        trackers: Trackers | None = None,
    ):
        self._max_steps, self._peak_rate = max_steps, peak_rate
        self._metrics = MetricsLog(run_dir, steps_done)
        self._trackers = trackers or Trackers()
        self._bar = tqdm(
            total=max_steps,
            initial=steps_done,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            bar_format="{n_fmt}/{total_fmt} {bar}{desc}",
        )
        self._interval_start, self._interval_first_step = time.perf_counter(), steps_done
        self._first_updates: list[float] = []

    def update(self, step: int) -> None:
        """Counts one update; called for each of them, without waiting for the device."""
        self._bar.update(1)
        # The first update may include compilation; the next two give an estimate.
        if len(self._first_updates) < 3:
            self._first_updates.append(time.perf_counter())
            if len(self._first_updates) == 3:
                seconds = (self._first_updates[2] - self._first_updates[0]) / 2
                self._warn_if_long(seconds, self._max_steps - step)

    def log_training(
        self, step: int, num_targets: int, data_seconds: float, values: Mapping[str, float]
    ) -> None:
        """Records the updates since the last call.

        Args:
            step: Number of the latest update.
            num_targets: Target tokens of these updates in this process.
            data_seconds: Time that this process has waited for data in these updates.
            values: ``loss``, ``nll``, ``lr``, ``grad_norm``, ``skipped`` (number of skipped
                updates of the run), and any other metric.
        """
        now = time.perf_counter()
        seconds, steps = now - self._interval_start, step - self._interval_first_step
        self._interval_start, self._interval_first_step = now, step
        rate = num_targets / seconds
        values = {**values, "ppl": perplexity(values["nll"]), "tokens_per_second": rate}
        if self._peak_rate is not None:
            values["mfu"] = rate / self._peak_rate
        values["data_wait"] = data_seconds / seconds
        self._record("train", step, values)
        remaining = seconds / steps * (self._max_steps - step)
        progress = f"{step}/{self._max_steps}"
        if not self._bar.disable:
            # At least one character remains for the bar itself.
            width = _terminal_width() - len(f"{self._max_steps}/{self._max_steps} ") - 2
            description = format_values(values, remaining, width)
            self._bar.set_description_str(f" {description}", refresh=False)
        self.note(f"{progress} {format_values(values, remaining, _LOG_WIDTH - len(progress) - 1)}")

    def log_validation(self, step: int, result: ValidationResult) -> None:
        """Records a validation, with ``loss`` and ``nll``, unless that step is already recorded."""
        if step == self._metrics.last_validation:
            return
        values = {**result.metrics, "ppl": perplexity(result.metrics["nll"])}
        self._record("valid", step, values)
        if result.samples:
            self._trackers.log_samples(step, result.samples)
        if result.attention is not None:
            self._trackers.log_attention(step, result.attention)
        scores = [
            f"  {_LABELS.get(name, name)} {value:.2f}"
            for name, value in values.items()
            if name not in ("loss", "nll", "ppl")
        ]
        lines = "" if result.num_lines is None else f"  (on {result.num_lines} lines)"
        self.note(
            f"  validation: loss {values['loss']:.3f}  ppl {values['ppl']:.3g}"
            f"{''.join(scores)}{lines}"
        )

    def note(self, line: str) -> None:
        """Logs a line above the progress bar."""
        with tqdm.external_write_mode(file=sys.stderr):
            log.info("%s", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context from tokens/s and the remaining time."""
        start = time.perf_counter()
        yield
        self._interval_start += time.perf_counter() - start

    def sync(self) -> None:
        """Writes the records to disk, before a checkpoint that relies on them."""
        self._metrics.sync()

    def close(self) -> None:
        """Closes the progress bar and ``metrics.jsonl``."""
        self._bar.close()
        self._metrics.close()

    def _record(self, split: str, step: int, values: Mapping[str, float]) -> None:
        self._metrics.append(split, step, values)
        self._trackers.log_scalars(split, step, values)

    def _warn_if_long(self, seconds_per_update: float, remaining_steps: int) -> None:
        seconds = seconds_per_update * remaining_steps
        if seconds > _LONG_RUN_SECONDS:
            self.note(
                f"warning: an update takes {seconds_per_update:.0f} s on this machine; the "
                f"remaining {remaining_steps:,} would take {seconds / 86400:.0f} days. To see the "
                "whole pipeline in minutes: mt-train experiment=quickstart"
            )


def _ignore(*_: Any, **__: Any) -> None:
    pass


class NullMonitor(Monitor):
    """Records nothing: the monitor of all ranks but the main one."""

    def __init__(self) -> None:
        pass

    update = log_training = log_validation = note = sync = close = _ignore

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does nothing."""
        yield


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _LOG_WIDTH
    except OSError:  # it was closed, and training goes on without it
        return _LOG_WIDTH


def format_values(values: Mapping[str, float], remaining: float, width: int) -> str:
    """A training record as one line; less important values are left out to fit the width.

    Args:
        values: The record.
        remaining: Estimated time until the last update, in seconds.
        width: Maximum number of characters.
    """
    # In the order of the line; the highest number is left out first.
    parts = [
        (0, f"loss {values['loss']:.3f}"),
        (4, f"ppl {values['ppl']:.3g}"),
        (6, f"lr {values['lr']:.1e}".replace("e-0", "e-")),
        (5, f"|g| {values['grad_norm']:.2g}"),
        (1, f"{tqdm.format_sizeof(values['tokens_per_second'])} tok/s"),
    ]
    if "mfu" in values:
        parts.append((4, f"MFU {values['mfu']:.0%}"))
    if values["data_wait"] >= 0.005:
        parts.append((3, f"wait {values['data_wait']:.0%}"))
    if values.get("skipped"):
        parts.append((3, f"skipped {values['skipped']:.0f}"))
    parts.append((2, f"<{tqdm.format_interval(remaining)}"))
    while parts and len(line := " ".join(text for _, text in parts)) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    return line if parts else ""


def perplexity(nll: float) -> float:
    """E to the power of the mean negative log-likelihood per target token, at most e⁷⁰⁰."""
    return math.exp(min(nll, 700.0))
