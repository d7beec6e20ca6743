"""The training loop: updates, logging, checkpoints, validations."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import prefetch
from transformer_mt.data.batching.subword_regularization import SampledSegmentation
from transformer_mt.data.store.corpus import Corpus
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World
from transformer_mt.kernels import hardware
from transformer_mt.kernels.choice import Kernels
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.checkpoint_manager import CheckpointManager, NullCheckpointManager
from transformer_mt.training.components import build_components, log_components
from transformer_mt.training.flops import peak_token_rate
from transformer_mt.training.metric_sums import MetricSums
from transformer_mt.training.monitor import Monitor, NullMonitor
from transformer_mt.training.schedule import learning_rate
from transformer_mt.training.signals import Signals, StoppedError, handle_signals
from transformer_mt.training.step import StepResult
from transformer_mt.training.trackers import Trackers
from transformer_mt.training.training_errors import (
    explain_out_of_memory,
    not_finite_error,
    too_many_skipped_error,
)
from transformer_mt.training.training_state import TrainingState
from transformer_mt.training.validation import ValidationResult, Validator, validation_loss

log = logging.getLogger(__name__)


class Trainer:
    """Trains a model; resumes from the latest valid checkpoint of the run folder, if there is one.

    Args:
        job: Configuration; only the main rank reads and writes its ``run_dir``.
        train: Training pairs.
        segmentation: Samples their segmentation, again in each epoch (``tokenizer.sampling``), or
            None.
        valid: Validation pairs.
        vocab_size: V.
        validator: Translates and scores the validation set with a model in ``eval`` mode.
        world: Ranks that share the run.
        clock: Monotonic clock, in seconds.
        recorded_kernels: Those of an earlier start of the run, on the main rank.

    Attributes:
        model: The model in training.
        kernels: Precision and kernel of its matrix products.
    """

    def __init__(
        self,
        job: TrainJob,
        train: Corpus,
        segmentation: SampledSegmentation | None,
        valid: TokenStore,
        vocab_size: int,
        validator: Validator,
        world: World,
        clock: Callable[[], float] = time.perf_counter,
        recorded_kernels: Kernels | None = None,
    ):
        self._job, self._world, self._validator = job, world, validator
        self._run_dir = Path(job.run_dir)
        self._train, self._valid, self._clock = train, valid, clock
        self._found = ckpt.valid_checkpoints(self._run_dir) if world.is_main else []
        resuming = world.broadcast_object(bool(self._found))
        self._components = build_components(
            job,
            train,
            segmentation,
            valid,
            vocab_size,
            world,
            recorded_kernels,
            resuming=resuming,
        )
        self.model, self._train_step = self._components.model, self._components.step
        self.kernels = self._components.kernels
        self._batches, self._criteria = self._components.batches, self._components.criteria
        self._sums = MetricSums(world, job.train.max_skipped)
        self._state = TrainingState()
        self._restored_metrics: dict[str, float] | None = None
        if resuming:
            self._restore()
        self._monitor: Monitor = NullMonitor()
        self._checkpoints: CheckpointManager = NullCheckpointManager()

    @property
    def steps_done(self) -> int:
        """Number of updates done."""
        return self._state.step

    @property
    def model_steps(self) -> list[int]:
        """Updates whose weights the final model is made of, on the main rank, after ``run``."""
        return self._checkpoints.model_steps

    @property
    def is_finished(self) -> bool:
        """Whether no update and no validation remains."""
        return self._criteria.should_stop(self._state) and not self._validation_is_pending()

    def run(self, trackers: Trackers | None = None) -> Transformer:
        """Trains until a stopping criterion is met, and writes the final weights.

        Args:
            trackers: Record the run; the main rank's are used.

        Returns:
            The final model in ``eval`` mode, on every rank.

        Raises:
            StoppedError: SIGINT, SIGTERM or SIGHUP; a checkpoint was saved first.
            InputError: Gradients, weights or the loss are not finite, a checkpoint cannot be
                written, or memory is insufficient.
        """
        remaining = range(self.steps_done + 1, self._criteria.last_step + 1)
        batches = prefetch(self._batches.read, remaining)
        try:
            if self._world.is_main:
                self._open(trackers)
            with handle_signals() as signals:
                self._loop(batches, signals)
            if self._world.is_main:
                log.info("finished: %s", self._criteria.reason(self._state))
            weights = self._checkpoints.finish(self._state)
        finally:
            batches.close()
            self._batches.close()
            self._checkpoints.close()
            self._monitor.close()
        return self._final_model(weights)

    def _restore(self) -> None:
        """Restores all ranks from the latest checkpoint, which only the main rank has.

        The data and the dropout masks need no state: those of an update are functions of its number
        (``BatchIterator.global_batch``, ``_update``).
        """
        world, optimizer_state = self._world, self._components.optimizer_state()
        content: tuple[dict[str, Any], dict[str, float] | None] = ({}, None)
        if self._found:
            latest = self._found[-1]
            ckpt.restore(latest, self.model, optimizer_state)
            content = latest.state, latest.validation
        state, self._restored_metrics = world.broadcast_object(content)
        world.broadcast([*ckpt.parameters(self.model).values(), *optimizer_state.values()])
        self._state = TrainingState.from_json(state)
        self._sums.restore(self._state.metric_sums)
        if self._restored_metrics:
            self._record_validation(self._restored_metrics)

    def _final_model(self, weights: dict[str, Tensor]) -> Transformer:
        """A new model with the final weights, which only the main rank has."""
        # Not the model in training: its layers may be compiled, for batches of one shape only.
        model = Transformer(self._job.model, self.model.vocab_size).to(self._world.device)
        parameters = ckpt.parameters(model)
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
        self._world.broadcast(parameters.values())
        return model.eval()

    def _open(self, trackers: Trackers | None) -> None:
        """Opens the log and the checkpoints, on the main rank."""
        job, components, last_step = self._job, self._components, self._criteria.last_step
        log_components(job, components, len(self._train), self.steps_done, self._world)
        peak_rate = peak_token_rate(
            job.model,
            self.model.vocab_size,
            self._train.sample,
            components.kernels.precision,
            self._world,
        )
        self._monitor = Monitor(self._run_dir, self.steps_done, last_step, peak_rate, trackers)
        self._checkpoints = CheckpointManager(self._run_dir, job.train, self._criteria, self._found)
        if self._validation_is_pending():
            self._checkpoints.prune_leftovers()

    def _loop(self, batches: Iterator[tuple[list[Batch], int]], signals: Signals) -> None:
        """Trains, logs, saves and validates until a stopping criterion is met."""
        config, world, state, criteria = self._job.train, self._world, self._state, self._criteria
        if state.step == 0 and world.device.type == "cuda" and not self._batches.buffer_shape:
            self._probe_memory()
        if self._validation_is_pending():
            with self._monitor.paused():
                self._validate(signals)
        elif self._restored_metrics:  # the record may have been lost with the process
            self._monitor.log_validation(state.step, ValidationResult(self._restored_metrics))
        data_seconds, targets = 0.0, 0  # of this process, since the last line of the log
        start = self._clock()
        while not criteria.should_stop(state):
            state.step += 1
            requested = self._clock()
            micro_batches, num_targets = next(batches)
            num_targets = self._batches.total_targets(num_targets)
            data_seconds += self._clock() - requested
            result = self._update(micro_batches, num_targets)
            if self._components.ema:
                self._components.ema.update(state.step)
            self._sums.add(state.step, result, num_targets)
            targets += num_targets
            self._monitor.update(state.step)
            state.seconds += self._clock() - start
            start = self._clock()
            if config.max_hours is not None:  # all ranks follow the main rank's clock
                state.seconds = world.broadcast_object(state.seconds)
            stop_requested = world.any(signals.received is not None)
            logs = criteria.is_last_update(state) or state.step % config.log_every == 0
            if logs or world.device.type == "cpu":
                self._check_skipped()
            if logs and self._log(result, targets, data_seconds):
                data_seconds, targets = 0.0, 0
            self._checkpoints.check()
            validates = criteria.needs_validation(state)
            if stop_requested or validates or criteria.is_averaged(state.step):
                with self._monitor.paused():
                    self._monitor.sync()
                    self._save()
                    if stop_requested:
                        self._stop(signals)
                    if validates:
                        self._validate(signals)

    def _update(self, micro_batches: list[Batch], num_targets: int) -> StepResult:
        """One update, with the learning rate and the dropout seed of its number."""
        step = self._state.step
        seed = _seed(self._job.train.seed, step, self._world.rank)
        with self._explain_out_of_memory(micro_batches):
            return self._train_step(micro_batches, num_targets, self._learning_rate(step), seed)

    def _probe_memory(self) -> None:
        """Computes the gradient of the largest batch, so that missing memory shows at the start."""
        micro_batches = self._batches.worst_case()
        with self._explain_out_of_memory(micro_batches):
            self._train_step.gradient(micro_batches[:1], 1)
        self._train_step.optimizer.zero_grad()

    def _explain_out_of_memory(self, micro_batches: list[Batch]) -> AbstractContextManager[None]:
        max_length = self._job.data.cleaning.max_tokens
        return explain_out_of_memory(micro_batches, self._components.max_tokens, max_length)

    def _learning_rate(self, step: int) -> float:
        schedule, d_model = self._job.schedule, self._job.model.d_model
        return learning_rate(step, schedule, d_model=d_model, max_steps=self._criteria.last_step)

    def _log(self, result: StepResult, targets: int, data_seconds: float) -> bool:
        """Logs the updates since the last call; False if all of them were skipped."""
        sums, state = self._sums.read(), self._state
        self._sums.clear()
        if skipped := int(sums["skipped"]):
            state.skipped += skipped
            self._monitor.note(f"  skipped {skipped} updates: the gradient was not finite")
        if not sums["targets"]:
            return False
        values = {
            "loss": sums["loss"] / sums["targets"],
            "nll": sums["nll"] / sums["targets"],
            "lr": self._learning_rate(state.step),
            "grad_norm": result.grad_norm.item(),
            "skipped": state.skipped,
        }
        self._monitor.log_training(state.step, targets, data_seconds, values)
        return True

    def _check_skipped(self) -> None:
        """Raises ``InputError`` after too many consecutive skipped updates."""
        first = self._sums.first_of_too_many_skipped()
        if not first:
            return
        steps, lines = range(first, first + self._job.train.max_skipped), {}
        if self._world.is_main:
            lines = {s: self._batches.locations(s) for s in steps}
        raise too_many_skipped_error(self._run_dir, steps, lines)

    def _save(self) -> None:
        """Starts to write a checkpoint."""
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise not_finite_error("the weights are", self._state.step)
        self._state.metric_sums = self._sums.state()
        self._checkpoints.save(self._state, self.model, self._components.optimizer_state())

    def _stop(self, signals: Signals) -> None:
        """Stops training because some rank received a signal; the checkpoint is saved."""
        self._checkpoints.wait()
        raise StoppedError(max(self._world.gather(signals.received or 0)))

    def _validation_is_pending(self) -> bool:
        """Whether training resumes from a checkpoint that is still to be validated."""
        return self._criteria.needs_validation(self._state) and self._restored_metrics is None

    def _validate(self, signals: Signals) -> None:
        """Validates the weights of the latest checkpoint; a signal interrupts it immediately."""
        ema = self._components.ema
        model = ema.model if ema else self.model
        model.eval()
        hardware.release_freed_memory()
        # Eager, because validation batches have any shape.
        with signals.interrupting(), torch.compiler.set_stance("force_eager"):
            losses = validation_loss(
                model,
                self._valid,
                smoothing=self._job.train.label_smoothing,
                precision=self._components.kernels.precision,
                max_tokens=self._components.micro_batch_tokens,
                world=self._world,
            )
            if not math.isfinite(losses["loss"]):
                raise not_finite_error("the validation loss is", self._state.step)
            result = self._validator(model)
        model.train()
        hardware.release_freed_memory()
        # All ranks must agree on what is better.
        metrics = self._world.broadcast_object({**losses, **result.metrics})
        self._record_validation(metrics)
        self._checkpoints.record_validation(self._state, metrics)
        self._monitor.log_validation(self._state.step, replace(result, metrics=metrics))

    def _record_validation(self, metrics: dict[str, float]) -> None:
        best_by = self._job.train.best_by
        higher_is_better = {"nll": False, **self._validator.higher_is_better}[best_by]
        self._state.record_validation(metrics, best_by, higher_is_better=higher_is_better)


def _seed(*parts: int) -> int:
    """A 64-bit seed derived from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
