"""Record of a run: progress bar and log lines, ``metrics.jsonl``, and trackers."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.progress import StoppingCriteria, TrainingState
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.validation import ValidationResult

log = logging.getLogger(__name__)

_LABELS = {"bleu": "BLEU", "chrf": "chrF2"}
"""Names of validation metrics in the log, where they are not those in ``metrics.jsonl``."""


class Monitor:
    """Records a run; on ranks other than the main one it does nothing.

    Args:
        run_dir: Run folder.
        state: Progress so far; records of later updates are removed.
        criteria: Limits of the run.
        trackers: Record the run as well; the caller closes them.
        is_main: Whether this is the main rank.

    Attributes:
        bar: Progress bar of the updates, drawn on a terminal; the caller closes it.
    """

    def __init__(
        self,
        run_dir: Path,
        state: TrainingState,
        criteria: StoppingCriteria,
        trackers: Trackers | None = None,
        is_main: bool = True,
    ):
        self._max_steps = criteria.max_steps
        self._deadline = time.perf_counter() + criteria.max_seconds - state.seconds
        self._metrics = MetricsLog(run_dir, state) if is_main else None
        self._trackers = trackers or Trackers()
        self.bar = tqdm(
            total=criteria.max_steps,
            initial=state.step,
            disable=not is_main or not sys.stderr.isatty(),
            dynamic_ncols=True,
            # tqdm's estimate does not know of the deadline; with one, the log lines have ours.
            bar_format="{n_fmt}/{total_fmt} {bar}{desc}"
            + " <{remaining}" * (criteria.max_seconds == math.inf),
        )
        self._interval_start, self._interval_first_step = time.perf_counter(), state.step

    def log_training(
        self, step: int, values: Mapping[str, float], num_targets: int, data_seconds: float
    ) -> None:
        """Records the updates since the last call.

        Args:
            step: Number of the latest update.
            values: ``loss``, ``nll``, ``lr``, ``grad_norm``, ``skipped`` (number of skipped
                updates of the run), and any other metric.
            num_targets: Target tokens of these updates.
            data_seconds: Time that this process has waited for their data.
        """
        now = time.perf_counter()
        seconds, steps = now - self._interval_start, step - self._interval_first_step
        self._interval_start, self._interval_first_step = now, step
        values = {
            **values,
            "ppl": perplexity(values["nll"]),
            "tokens_per_second": num_targets / seconds,
            "data_wait": data_seconds / seconds,
        }
        self._record("train", step, values)
        line = format_values(values)
        self.bar.set_description_str(f" {line}", refresh=False)
        left = max(0.0, min(seconds / steps * (self._max_steps - step), self._deadline - now))
        # The first update is slower than later ones, from which the remaining time is estimated.
        ending = f"in {seconds:.1f} s" if step == 1 else f"<{tqdm.format_interval(left)}"
        self.note(f"{step}/{self._max_steps} {line} {ending}")

    def log_validation(self, step: int, result: ValidationResult) -> None:
        """Records a validation, with ``loss`` and ``nll``."""
        metrics = result.metrics
        self._record("valid", step, {**metrics, "ppl": perplexity(metrics["nll"])})
        if result.samples:
            self._trackers.log_samples(step, result.samples)
        self.note(f"  validation: {self.format_validation(metrics)}")

    def log_final(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records the validation of the final model, an average of checkpoints."""
        self._record("final", step, {**metrics, "ppl": perplexity(metrics["nll"])})
        self.note(f"  final model: {self.format_validation(metrics)}")

    def format_validation(self, metrics: Mapping[str, float]) -> str:
        """The results of a validation as one line."""
        parts = [f"loss {metrics['loss']:.3f}", self.format_metric("nll", metrics["nll"])]
        scores = [name for name in metrics if name not in ("loss", "nll")]
        parts += [self.format_metric(name, metrics[name]) for name in scores]
        return "  ".join(parts)

    def format_metric(self, name: str, value: float) -> str:
        """A metric of validations with its value; of ``nll``, the perplexity."""
        if name == "nll":
            return f"ppl {perplexity(value):.3g}"
        return f"{_LABELS.get(name, name)} {value:.2f}"

    def note(self, line: str) -> None:
        """Logs a line, on the main rank."""
        if self._metrics is not None:
            log.info("%s", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context from tokens/s and the remaining time."""
        start = time.perf_counter()
        yield
        self._interval_start += time.perf_counter() - start

    def _record(self, split: str, step: int, values: Mapping[str, float]) -> None:
        if self._metrics:
            self._metrics.append(split, step, values)
        self._trackers.log_scalars(split, step, values)


def format_values(values: Mapping[str, float]) -> str:
    """A training record as one line."""
    parts = [
        f"loss {values['loss']:.3f}",
        f"ppl {values['ppl']:.3g}",
        f"lr {values['lr']:.1e}".replace("e-0", "e-"),
        f"|g| {values['grad_norm']:.2g}",
        f"{tqdm.format_sizeof(values['tokens_per_second'])} tok/s",
    ]
    if values["data_wait"] >= 0.005:
        parts.append(f"wait {values['data_wait']:.0%}")
    if values.get("skipped"):
        parts.append(f"skipped {values['skipped']:.0f}")
    return " ".join(parts)


def perplexity(nll: float) -> float:
    """Perplexity per target token: exp of the mean negative log-likelihood, at most e⁷⁰⁰."""
    return math.exp(min(nll, 700.0))
