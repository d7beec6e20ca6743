"""The training loop: updates, logging, checkpoints, validations."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch

from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator, prefetch
from transformer_mt.data.prepare import Prepared
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError, is_out_of_memory
from transformer_mt.kernels import hardware
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import SCHEDULES
from transformer_mt.training.checkpoint_manager import CheckpointManager
from transformer_mt.training.interruptions import Signals, StoppedError
from transformer_mt.training.monitor import Monitor
from transformer_mt.training.optimizer import Schedule
from transformer_mt.training.progress import StoppingCriteria, deciding_metric, is_better
from transformer_mt.training.setup import agreed_precision, default_max_tokens, initial_model
from transformer_mt.training.step import LossModule, MetricSums, TrainStep
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.validation import ValidationResult, Validator, validation_loss

_ADVICE = (
    "lower the learning rate or lengthen the warm-up (schedule), or clip the gradient "
    "(train.clip_norm), and resume; delete the latest checkpoints to resume from an earlier one"
)
"""Advice in errors about gradients or a loss that are not finite."""

_MAX_SKIPPED = 10
"""Skipped updates in a row that end a run. In fp16 a few are ordinary, until the loss scale is
small enough; after ten the run has diverged."""

Batches = Iterator[tuple[list[Batch], int]]
"""This rank's micro-batches, and the number of target tokens on all ranks, for each update."""


class Trainer:
    """Trains a model; resumes from the latest valid checkpoint of the run folder, if there is one.

    Args:
        job: Configuration; only the main rank reads and writes its ``run_dir``.
        data: Training and validation data, and their vocabulary.
        validator: Translates and scores the validation set with a model in ``eval`` mode.
        world: Ranks that share the run.

    Attributes:
        model: The model in training.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        batches: The batches of its updates.
        criteria: Intervals and limits of the run.
        state: Progress of the run.
        checkpoints: Checkpoints of the run, from which the final model is made.
        finished: Why there is nothing to do, if earlier starts have done all updates and
            validations; otherwise None.
    """

    def __init__(self, job: TrainJob, data: Prepared, validator: Validator, world: World):
        self._job, self._data, self._validator, self._world = job, data, validator, world
        self._run_dir, config, device = Path(job.run_dir), job.train, world.device
        self._schedule: Schedule = resolve_name(SCHEDULES[job.schedule.name])
        self._lr = 0.0  # of the latest update
        self._monitor: Monitor
        self._micro_batches: list[Batch] = []  # of the current update
        self._targets, self._data_seconds = 0, 0.0  # of the updates since the last log line
        self._accounted = 0.0  # when ``state.seconds`` was updated

        self.checkpoints = CheckpointManager(job, world)
        replaced = self.checkpoints.is_resuming or not world.is_main
        self.model = initial_model(
            job, data.tokenizer, data.train.sample, device, replaced=replaced
        )
        self.precision, compiled = agreed_precision(job, world)
        max_tokens = config.max_tokens_per_device or default_max_tokens(
            job.model, device, self.model.vocab_size if compiled else None
        )
        # What the smallest GPU holds: ranks that split an update into parts of different sizes
        # would train on some of its pairs twice, and on others never.
        self._max_tokens = min(world.gather(max_tokens))
        self.batches = BatchIterator(job, data.train, self._max_tokens, compiled, world)
        if shape := self.batches.buffer_shape:
            # Once: a table of positions of another size would recompile the step.
            translation = job.decode.max_source_tokens + job.decode.max_extra_tokens + 1
            longest = max(shape.max_length, data.valid_store.max_length, translation)
            for embedding in {self.model.source_embedding, self.model.embedding}:
                embedding.reserve(longest)
        self._train_step = TrainStep(
            self.model,
            job.optimizer,
            config.label_smoothing,
            self.precision,
            world,
            clip_norm=config.clip_norm,
            compiled=compiled,
        )
        self.criteria = StoppingCriteria(config)
        self.state = state = self.checkpoints.restore(self._train_step.tensors())
        self._sums = MetricSums(self._world, state.totals)
        # A run may have ended between a checkpoint and its validation.
        self._is_unvalidated = self.criteria.needs_validation(state) and state.metrics is None
        self.finished = None if self._is_unvalidated else self.criteria.stops(state)

    def run(self, trackers: Trackers | None = None) -> Transformer:
        """Trains until a stopping criterion is met, and writes the final weights.

        Args:
            trackers: Record the run; the main rank's are used.

        Returns:
            The model in ``eval`` mode with its final weights, on every rank.

        Raises:
            StoppedError: SIGINT, SIGTERM or SIGHUP; a checkpoint was saved first.
            InputError: Gradients or the loss are not finite, or memory is insufficient.
            OSError: A checkpoint or the log cannot be written.
        """
        job, state, world = self._job, self.state, self._world
        self._monitor = Monitor(self._run_dir, state, self.criteria, trackers, world.is_main)
        remaining = range(state.step + 1, job.train.max_steps + 1)
        batches = prefetch(self.batches.read(remaining))
        try:
            with Signals(world.size > 1) as signals:
                with closing(self.checkpoints):
                    self._loop(batches, signals)
                self._monitor.note(f"finished: {self.criteria.stops(state)}")
                if weights := self.checkpoints.finish(state):  # on the main rank
                    self.model.load_state_dict(weights)
                world.broadcast(self.model.parameters())
                self.model.eval()
                self._validate_final(signals)
        except RuntimeError as error:
            if not (self._micro_batches and is_out_of_memory(error)):
                raise
            raise InputError(self._memory_advice()) from None
        finally:
            batches.close()
            self._monitor.bar.close()
        return self.model

    def _loop(self, batches: Batches, signals: Signals) -> None:
        """Trains, logs, saves and validates until a stopping criterion is met."""
        state, criteria = self.state, self.criteria
        self._accounted = time.perf_counter()
        if state.step == 0 and self._world.device.type == "cuda" and not self.batches.buffer_shape:
            self._probe_memory()
        interval, stop_requested = criteria.interval(state), False
        if self._is_unvalidated:
            with self._monitor.paused():
                self._validate(signals)
        while not (stop_requested or criteria.stops(state)):
            self._step(batches)
            is_stopped = signals.received is not None or self._world.is_orphaned
            stop_requested = self._world.any(is_stopped)
            validates = criteria.needs_validation(state)
            is_due = state.step == 1 or state.step % self._job.train.log_every == 0
            if is_due or validates:
                self._log()
                self.checkpoints.check()
            previous, interval = interval, criteria.interval(state)  # of time in validations, too
            state.is_regular = interval > previous
            state.num_regular += state.is_regular
            if stop_requested or validates or state.is_regular:
                with self._monitor.paused():
                    state.totals = self._sums.read()
                    self.checkpoints.save(state, self._train_step.tensors())
                    if validates and not stop_requested:
                        self._validate(signals)
        # A signal may have come since the last update.
        if self._world.any(stop_requested or signals.received is not None):
            self.checkpoints.wait()
            number = max(self._world.gather(signals.received or 0))
            raise StoppedError(number or signal.SIGTERM)  # 0 without torchrun

    def _step(self, batches: Batches) -> None:
        """One update, with the learning rate and the dropout seed of its number, and its time."""
        job, start = self._job, time.perf_counter()
        self._micro_batches, num_targets = next(batches)
        waited = time.perf_counter() - start
        self.state.step = step = self.state.step + 1
        self.state.metrics = None
        parts = np.random.SeedSequence((job.train.seed, step, self._world.rank))
        seed = int(parts.generate_state(1, np.uint64)[0])
        max_steps = self.criteria.expected_steps(self.state)
        self._lr = self._schedule(step, job.schedule, job.model.d_model, max_steps)
        result = self._train_step(self._micro_batches, num_targets, self._lr, seed)
        self._micro_batches = []  # if memory is exhausted later, it is not by this update
        self._sums.add(result, num_targets)
        self._targets += num_targets
        self._data_seconds += waited
        self._monitor.bar.update(1)
        now = time.perf_counter()
        self.state.seconds += now - self._accounted
        self._accounted = now
        if self.criteria.max_seconds < math.inf:  # all ranks follow the main rank's clock
            self.state.seconds = self._world.broadcast_object(self.state.seconds)

    def _probe_memory(self) -> None:
        """Computes the gradient of the largest batch, so that missing memory shows at the start."""
        self._micro_batches = [self.batches.worst_case()]
        self._train_step.gradient(self._micro_batches, 1)
        self._train_step.optimizer.zero_grad()
        self._micro_batches = []

    def _memory_advice(self) -> str:
        """What to do when the current update exhausts the memory."""
        max_tokens, max_length = self._max_tokens, self._job.data.cleaning.max_tokens
        sides = [side for x in self._micro_batches for side in (x.src.tokens, x.tgt_out)]
        tokens = max(map(len, sides))
        less = max(max_length, min(max_tokens, tokens) // 2)  # each sentence must fit
        advice = "lower data.cleaning.max_tokens, or use a smaller model"
        if less < min(max_tokens, tokens):
            advice = f"set train.max_tokens_per_device={less}, which changes dropout masks only"
        return f"out of memory on a batch of {tokens:,} tokens: {advice}"

    def _log(self) -> None:
        """Logs the updates since the last line, unless all of them were skipped."""
        sums, state = self._sums.read(), self.state
        if (streak := self._sums.streak.item()) >= _MAX_SKIPPED:
            raise InputError(
                f"by update {state.step:,} the gradient was not finite in {streak} updates in a "
                f"row, which were skipped: {_ADVICE}"
            )
        self._sums.clear()
        if skipped := int(sums["skipped"]):
            state.skipped += skipped
            self._monitor.note(f"  skipped {skipped} updates: the gradient was not finite")
        if not sums["targets"]:
            return
        values = {
            "loss": sums["loss"] / sums["targets"],
            "nll": sums["nll"] / sums["targets"],
            "lr": self._lr,
            "grad_norm": self._sums.grad_norm.item(),
            "skipped": state.skipped,
        }
        self._monitor.log_training(state.step, values, self._targets, self._data_seconds)
        self._targets, self._data_seconds = 0, 0.0

    def _validate(self, signals: Signals) -> None:
        """Validates the weights of the latest checkpoint, which is a part of the run's time."""
        start = time.perf_counter()
        self.checkpoints.wait()  # it is on disk if a signal interrupts the validation
        self.model.eval()
        result = self._evaluate(signals)
        self.model.train()
        self.state.record_validation(result.metrics, self._job.train.best_by)
        self._monitor.log_validation(self.state.step, result)
        spent = self._world.broadcast_object(time.perf_counter() - start)
        self.state.seconds += spent
        self._accounted += spent
        self.checkpoints.record_validation(self.state)  # last: otherwise it is repeated

    def _validate_final(self, signals: Signals) -> None:
        """Validates an average of checkpoints, and says so if the best checkpoint is better."""
        state, config = self.state, self._job.train
        if config.final != "average":
            return
        metrics = state.metrics  # of the latest checkpoint alone
        if self._world.broadcast_object(len(self.checkpoints.model_steps)) > 1:
            metrics = self._evaluate(signals).metrics
            self._monitor.log_final(state.step, metrics)
        if metrics is None or state.best is None:
            return
        metric = deciding_metric(config.best_by, metrics[config.best_by], state.best)
        values = state.best_value(metric), metrics[metric]
        best, final = (self._monitor.format_metric(metric, value) for value in values)
        if is_better(*values, metric) and best != final:  # as printed
            self._monitor.note(
                f"  better on the validation set: the checkpoint of update {state.best_step:,} "
                f"({best}); the same command with train.final=best makes it the model"
            )

    def _evaluate(self, signals: Signals) -> ValidationResult:
        """The loss and the scores of a validation, which a signal interrupts immediately."""
        hardware.release_freed_memory()
        # Eager, because validation batches have any shape.
        with signals.interrupting(), torch.compiler.set_stance("force_eager"):
            loss = LossModule(self.model, self._job.train.label_smoothing, self.precision)
            # Batches of about the size of those in training.
            max_tokens = min(self._max_tokens, self._job.train.batch_tokens // self._world.size)
            losses = validation_loss(loss, self._data.valid_store, max_tokens, self._world)
            if not math.isfinite(losses["loss"]):
                what = f"the validation loss is not finite after update {self.state.step:,}"
                raise InputError(f"{what}: {_ADVICE}")
            result = self._validator(self.model)
        hardware.release_freed_memory()
        # All ranks must agree on what is better.
        metrics = self._world.broadcast_object({**losses, **result.metrics})
        return replace(result, metrics=metrics)
