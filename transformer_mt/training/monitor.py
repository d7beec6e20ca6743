"""Record of a run: progress bar and log lines, ``metrics.jsonl``, and trackers."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.metrics_log import MetricsLog
from transformer_mt.training.progress import StoppingCriteria, TrainingState
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.validation import ValidationResult

log = logging.getLogger(__name__)

_LONG_RUN_SECONDS = 7 * 24 * 3600
"""A run that would take longer is announced after its third update."""
_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF2",
}
"""Names of validation metrics in the log, where they are not those in ``metrics.jsonl``."""
_DECIMALS = {"nll": 3}
_PRECISIONS = {
    "fp32": "32-bit numbers (fp32)",
    "bf16": "16-bit numbers (bf16)",
    "fp16": "16-bit numbers (fp16)",
}
"""Words for ``train.precision`` in the log."""
_USAGE_SECONDS = 30.0
"""Minimum time of updates of which the use of the cores is judged at once."""
_MIN_USAGE = 0.6
"""Share of their cores that the threads have at least: alone on a machine they have more than 0.9,
because a thread that is done early waits for the others actively."""


class Monitor:
    """Records a run; on ranks other than the main one it does nothing.

    Args:
        run_dir: Run folder.
        state: Progress so far; records of later updates are removed.
        criteria: Limits of the run.
        trackers: Record the run as well; the caller closes them.
        is_main: Whether this is the main rank.
        threads: Threads that train on a CPU, alone; 1 for any other device and for several ranks,
            whose CPU time says nothing about other programs.
    """

    def __init__(
        self,
        run_dir: Path,
        state: TrainingState,
        criteria: StoppingCriteria,
        trackers: Trackers | None = None,
        is_main: bool = True,
        threads: int = 1,
    ):
        self._max_steps = criteria.last_step
        self._remaining = criteria.last_step - state.step
        self._deadline = time.perf_counter() + criteria.max_seconds - state.seconds
        self._metrics = MetricsLog(run_dir, state.step) if is_main else None
        self._trackers = trackers or Trackers()
        self._bar = tqdm(
            total=criteria.last_step,
            initial=state.step,
            disable=not is_main or not sys.stderr.isatty(),
            dynamic_ncols=True,
            # tqdm's estimate does not know of the deadline; with one, the log lines have ours.
            bar_format="{n_fmt}/{total_fmt} {bar}{desc}"
            + " <{remaining}" * (criteria.max_seconds == math.inf),
        )
        self._interval_start, self._interval_first_step = time.perf_counter(), state.step
        self._targets, self._data_seconds = 0, 0.0
        self._first_updates: list[float] = []
        self._core_usage = CoreUsage(threads)

    def update(self, num_targets: int, data_seconds: float) -> None:
        """Counts one update; called for each of them, without waiting for the device.

        Args:
            num_targets: Its target tokens.
            data_seconds: Time that this process has waited for its data.
        """
        self._targets += num_targets
        self._data_seconds += data_seconds
        self._bar.update(1)
        # The first update may include compilation; the next two give an estimate.
        if len(self._first_updates) < 3:
            self._first_updates.append(time.perf_counter())
            if len(self._first_updates) == 3:
                self._warn_if_long((self._first_updates[2] - self._first_updates[0]) / 2)

    def log_training(self, step: int, values: Mapping[str, float]) -> None:
        """Records the updates since the last call.

        Args:
            step: Number of the latest update.
            values: ``loss``, ``nll``, ``lr``, ``grad_norm``, ``skipped`` (number of skipped
                updates of the run), and any other metric.
        """
        now = time.perf_counter()
        seconds, steps = now - self._interval_start, step - self._interval_first_step
        self._interval_start, self._interval_first_step = now, step
        rate, waiting = self._targets / seconds, self._data_seconds / seconds
        if warning := self._core_usage.check(self._data_seconds):
            self.note(warning)
        self._targets, self._data_seconds = 0, 0.0
        values = {**values, "ppl": perplexity(values["nll"]), "tokens_per_second": rate}
        values["data_wait"] = waiting
        self._record("train", step, values)
        line = format_values(values)
        self._bar.set_description_str(f" {line}", refresh=False)
        left = max(0.0, min(seconds / steps * (self._max_steps - step), self._deadline - now))
        # The first update is slower than later ones, from which the remaining time is estimated.
        ending = f"in {seconds:.1f} s" if step == 1 else f"<{tqdm.format_interval(left)}"
        self.note(f"{step}/{self._max_steps} {line} {ending}")

    def log_validation(self, step: int, result: ValidationResult) -> None:
        """Records a validation, with ``loss`` and ``nll``, unless that step is already recorded."""
        if self._metrics is None or step == self._metrics.last_validation:
            return
        metrics = result.metrics
        self._record("valid", step, {**metrics, "ppl": perplexity(metrics["nll"])})
        if result.samples:
            self._trackers.log_samples(step, result.samples)
        self.note(f"  validation: {self.format_validation(metrics)}")

    def format_validation(self, metrics: Mapping[str, float]) -> str:
        """The results of a validation as one line."""
        parts = [f"loss {metrics['loss']:.3f}", f"ppl {perplexity(metrics['nll']):.3g}"]
        scores = [name for name in metrics if name not in ("loss", "nll")]
        parts += [self.format_metric(name, metrics[name]) for name in scores]
        return "  ".join(parts)

    def format_metric(self, name: str, value: float) -> str:
        """A metric of validations with its value."""
        return f"{_LABELS.get(name, name)} {value:.{_DECIMALS.get(name, 2)}f}"

    def note(self, line: str) -> None:
        """Logs a line, on the main rank."""
        if self._metrics is not None:
            log.info("%s", line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context from tokens/s and the remaining time."""
        start = time.perf_counter()
        with self._core_usage.paused():
            yield
        self._interval_start += time.perf_counter() - start

    def close(self) -> None:
        """Closes the progress bar."""
        self._bar.close()

    def _record(self, split: str, step: int, values: Mapping[str, float]) -> None:
        if self._metrics:
            self._metrics.append(split, step, values)
        self._trackers.log_scalars(split, step, values)

    def _warn_if_long(self, seconds_per_update: float) -> None:
        """Warns about a run that would take very long on this machine."""
        seconds = seconds_per_update * self._remaining
        if min(seconds, self._deadline - time.perf_counter()) > _LONG_RUN_SECONDS:
            self.note(
                f"warning: {self._remaining:,} updates of {seconds_per_update:.3g} s would take "
                f"{seconds / 86400:.0f} days on this machine: set train.max_hours, or model=auto "
                "for a smaller model; experiment=quickstart shows the whole pipeline in minutes"
            )


class CoreUsage:
    """Compares the CPU time of this process with the time that its threads are to compute.

    The threads of a matrix product wait for each other: a program that takes one of two cores takes
    more than half of the speed, while a single thread keeps most of its own.

    Args:
        threads: Number of threads, each of which needs a core; with one, there is no warning.
    """

    def __init__(self, threads: int):
        self._threads = threads
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def check(self, waited: float) -> str | None:
        """A warning after half a minute or more with too little CPU time, once.

        Args:
            waited: Seconds since the last call for which training has waited for its data.
        """
        self._wall += waited
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if self._threads == 1 or wall < _USAGE_SECONDS:
            return None
        self._wall, self._cpu = self._wall + wall, self._cpu + cpu
        cores = cpu / wall
        if cores >= _MIN_USAGE * self._threads:
            return None
        fewer = max(1, int(cores))
        message = (
            f"warning: for {wall:.0f} s the {self._threads} threads of training got only "
            f"{cores:.1f} cores, and waited for each other: if other programs use this "
            f"machine, set OMP_NUM_THREADS={fewer} and run the same command again to continue"
        )
        self._threads = 1  # the warning is given once
        return message

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self._wall += time.perf_counter() - wall
        self._cpu += time.process_time() - cpu


def log_start(
    job: TrainJob,
    num_pairs: int,
    model: Transformer,
    batches: BatchIterator,
    criteria: StoppingCriteria,
    precision: str,
    world: World,
    *,
    done: int,
) -> None:
    """Logs the sizes of model and run, and the number of updates done by earlier starts."""
    log.info(
        "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
        f"{sum(map(torch.numel, model.parameters())):,}",
        job.model.num_encoder_layers,
        job.model.num_decoder_layers,
        job.model.d_model,
        f"{model.vocab_size:,}",
    )
    log.info(
        "training: %s pairs, %s updates per epoch, %s in total, on %d × %s, with %s%s",
        f"{num_pairs:,}",
        f"{batches.steps_per_epoch:,}",
        f"{criteria.last_step:,}",
        world.size,
        "CPU" if world.device.type == "cpu" else "GPU",
        _PRECISIONS[precision],
        ", compiled" if batches.buffer_shape else "",
    )
    if criteria.last_step < criteria.warmup_steps:
        log.warning(
            "warning: the run ends after %s updates, in its warm-up of %s, so the learning rate "
            "does not reach its peak: lower schedule.warmup_steps, or raise the limit of the run",
            f"{criteria.last_step:,}",
            f"{criteria.warmup_steps:,}",
        )
    if done:
        log.info("resuming after update %s", f"{done:,}")
    elif job.train.init_from:
        layers = (job.model.num_encoder_layers, job.model.num_decoder_layers)
        log.info("starting from the weights of %s (%d + %d layers)", job.train.init_from, *layers)


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
