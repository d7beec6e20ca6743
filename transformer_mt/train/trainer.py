"""The training loop: from the latest checkpoint, if there is one, to the final model."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.batch import Batch
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.batching.prefetch import prefetch
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World
from transformer_mt.model.decoder_state import BLOCK
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.checkpoint_manager import CheckpointManager
from transformer_mt.train.ema import EMA
from transformer_mt.train.flops import flops_meter
from transformer_mt.train.hardware import pick_compiled, pick_precision, training_tokens
from transformer_mt.train.metric_sums import MetricSums
from transformer_mt.train.monitor import Monitor, Shown
from transformer_mt.train.schedule import learning_rate
from transformer_mt.train.signals import Signals, StoppedError, caught
from transformer_mt.train.step import StepResult, TrainStep
from transformer_mt.train.stopping import StoppingCriteria
from transformer_mt.train.training_errors import memory_explained, not_finite, too_many_skipped
from transformer_mt.train.training_state import TrainingState
from transformer_mt.train.validation_loss import validation_loss

log = logging.getLogger(__name__)

Translate = Callable[[Transformer], tuple[float, Shown | None]]
"""Translates the validation set, on every rank together: its BLEU, and what a person may see."""


class Trainer:
    """Trains to the end that the configuration names, from the latest checkpoint if there is one.

    Args:
        job: The configuration.
        run_dir: Folder of the run.
        train: Training pairs.
        sampled: The same pairs segmented anew each epoch (``tokenizer.sampling``), or None.
        valid: Validation pairs.
        vocab_size: V.
        translate: Validation BLEU, of a model in ``eval`` mode.
        world: Ranks that share the run. Only the main one reads and writes the folder.
    """

    def __init__(
        self,
        job: TrainJob,
        run_dir: Path,
        train: TokenStore,
        sampled: EpochStores | None,
        valid: TokenStore,
        vocab_size: int,
        translate: Translate,
        world: World,
    ):
        self._job, self._run_dir, self._world, self._translate = job, run_dir, world, translate
        self._train, self._valid = train, valid
        config = job.train
        self._precision = pick_precision(config.precision, world.device)
        torch.manual_seed(config.seed)
        self.model = Transformer(job.model, vocab_size).to(world.device)
        self._found = ckpt.whole_checkpoints(run_dir) if world.is_main else []
        if not world.broadcast_object(bool(self._found)) and config.init_from is not None:
            ckpt.load_weights(self.model, Path(config.init_from) / run_layout.WEIGHTS)
        self._max_tokens = config.max_tokens_per_device or training_tokens(job.model, world.device)
        compiled = pick_compiled(config.compile, job.model, world.device, self._precision)
        compiled = not world.any(not compiled)  # all ranks alike: it decides how batches are cut
        self._feed = BatchIterator(job, train, sampled, self._max_tokens, compiled, world)
        if self._feed.buffer_shape:
            # For validation too: another table would have the step compiled anew.
            translations = job.decode.max_source_tokens + job.decode.max_extra_tokens
            longest = max(
                self._feed.buffer_shape.max_length, valid.max_length, translations + BLOCK
            )
            self.model.embedding.reserve(longest)
        decay = config.ema_decay
        self._mean = None if decay is None else EMA(self.model, decay)
        self._limits = StoppingCriteria.of(config, self._feed.epochs.steps_per_epoch)
        self._feed.epochs.num_steps = self._limits.last_step
        self._step = TrainStep(
            self.model,
            job.optimizer,
            config.label_smoothing,
            self._precision,
            world,
            clip_norm=config.clip_norm,
            compiled=compiled,
        )
        self._totals = MetricSums(world, config.max_skipped)
        self._at = TrainingState()
        self._validated: dict[str, float] | None = None
        """The validation of the checkpoint that the run goes on from."""
        self._restore()

    @property
    def done(self) -> int:
        """Updates done, by the latest checkpoint."""
        return self._at.step

    @property
    def is_finished(self) -> bool:
        """Whether no update or validation is left to do."""
        return self._limits.is_over(self._at) and not self._validation_is_pending()

    def run(self) -> None:
        """Trains; leaves the final weights in ``self.model`` and in the model folder.

        Raises:
            StoppedError: SIGINT, SIGTERM or SIGHUP came; a checkpoint was written first.
            InputError: Gradients are no longer finite, a checkpoint cannot be written, or memory
                does not suffice.
        """
        job, main = self._job, self._world.is_main
        if main:
            self._describe()
        monitor = saver = None
        if main:
            meter = flops_meter(
                job.model, self.model.vocab_size, self._train, self._precision, self._world
            )
            monitor = Monitor(self._run_dir, self.done, self._limits.last_step, meter)
            saver = CheckpointManager(self._run_dir, job.train, self._limits, self._found)
            if self._validation_is_pending():
                saver.tidy()
        reader = prefetch(self._feed.read, range(self.done + 1, self._limits.last_step + 1))
        try:
            with caught() as signals:
                self._loop(monitor, saver, signals, reader)
            if main:
                log.info("ended after update %s: %s", f"{self.done:,}", self._limits.why(self._at))
            final = saver.finish(self._at) if saver else None
        finally:
            self._feed.epochs.close()
            reader.close()
            if saver:
                saver.close()
            if monitor:
                monitor.close()
        self._feed.epochs.remove()  # by all: each node has a cache of its own
        # In a model of its own: layers that are compiled for training take no other shapes.
        self.model = Transformer(job.model, self.model.vocab_size).to(self._world.device)
        weights = ckpt.parameters(self.model)
        for name, tensor in (final or {}).items():
            weights[name].copy_(tensor)
        self._world.broadcast(weights.values())

    def _loop(
        self,
        monitor: Monitor | None,
        saver: CheckpointManager | None,
        signals: Signals,
        reader: Iterator[tuple[list[Batch], int]],
    ) -> None:
        config, world, at = self._job.train, self._world, self._at
        if at.step == 0 and world.device.type == "cuda" and not self._feed.buffer_shape:
            self._probe()
        if self._validation_is_pending():
            self._validate(monitor, saver, signals)
        elif self._validated and monitor:  # its record may have been lost with the process
            monitor.validation(at.step, self._validated, None)
        waited, targets = 0.0, 0  # by this process, since the last line of the log
        begun = time.perf_counter()
        while not self._limits.is_over(at):
            at.step += 1
            ready = time.perf_counter()
            parts, num_targets = next(reader)
            waited += time.perf_counter() - ready
            result = self._update(parts, num_targets)
            if self._mean:
                self._mean.update(at.step)
            self._totals.add(at.step, result, num_targets)
            targets += num_targets
            if monitor:
                monitor.update(at.step)
            at.seconds += time.perf_counter() - begun
            begun = time.perf_counter()
            if config.max_hours is not None:  # by the main rank's clock, on all
                at.seconds = world.broadcast_object(at.seconds)
            stop = world.any(signals.received is not None)
            last = self._limits.is_last(at)
            logs = last or at.step % config.log_every == 0
            if logs or world.device.type == "cpu":
                self._check_skipped()
            if logs and self._log(monitor, result, targets, waited):
                waited, targets = 0.0, 0
            if saver:
                saver.check()
            validates = self._limits.wants_validation(at)
            if stop or validates or self._limits.is_averaged(at.step):
                with monitor.paused() if monitor else nullcontext():
                    if monitor:
                        monitor.sync()
                    self._save(saver)
                    if stop:
                        if saver:
                            saver.wait()
                        raise StoppedError(max(world.gather(signals.received or 0)))
                    if validates:
                        self._validate(monitor, saver, signals)

    def _update(self, parts: list[Batch], num_targets: int) -> StepResult:
        step = self._at.step
        seed = _seed(self._job.train.seed, step, self._world.rank)
        with self._memory_explained(parts):
            return self._step(parts, num_targets, self._learning_rate(step), seed)

    def _probe(self) -> None:
        """Runs the worst batch once, and forgets it: memory that lacks should lack now."""
        parts = self._feed.worst_case()
        with self._memory_explained(parts):
            self._step.gradient(parts[:1], 1)
        self._step.optimizer.zero_grad()

    def _memory_explained(self, parts: list[Batch]) -> AbstractContextManager[None]:
        return memory_explained(parts, self._max_tokens, self._job.data.cleaning.max_tokens)

    def _learning_rate(self, step: int) -> float:
        schedule, d_model = self._job.schedule, self._job.model.d_model
        return learning_rate(step, schedule, d_model=d_model, max_steps=self._limits.last_step)

    def _log(
        self, monitor: Monitor | None, result: StepResult, targets: int, waited: float
    ) -> bool:
        """Whether there was something to write: not so if all updates were skipped."""
        totals = self._totals.read()
        self._totals.clear()
        step, skipped = self._at.step, int(totals["skipped"])
        self._at.skipped += skipped
        if not monitor:
            return True
        if skipped:
            monitor.note(f"  {skipped} updates skipped: the gradient was not finite")
        if not totals["targets"]:
            return False
        values = {
            "loss": totals["loss"] / totals["targets"],
            "nll": totals["nll"] / totals["targets"],
            "lr": self._learning_rate(step),
            "grad_norm": result.grad_norm.item(),
            "skipped": self._at.skipped,
        }
        monitor.training(step, targets, waited, values)
        return True

    def _check_skipped(self) -> None:
        first = self._totals.too_many_skipped()
        if not first:
            return
        steps, lines = range(first, first + self._job.train.max_skipped), {}
        if self._world.is_main:
            lines = {
                step: [self._train.location(i) for i in self._feed.pair_indices(step)]
                for step in steps
            }
        raise too_many_skipped(self._run_dir, steps, lines)

    def _save(self, saver: CheckpointManager | None) -> None:
        finite = all(bool(p.isfinite().all()) for p in self.model.parameters())
        if not finite:
            raise not_finite("the weights are", self._at.step)
        self._at.totals = self._totals.state()
        if saver:
            saver.save(self._at, ckpt.snapshot(self.model, self))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds beside the weights."""
        return self._step.state() | (self._mean.state() if self._mean else {})

    def _restore(self) -> None:
        state = None
        if self._found:
            ckpt.restore(self._found[-1], self.model, self)
            state = self._found[-1].state, self._found[-1].validation
        found = self._world.broadcast_object(state)
        if found is None:
            return
        self._world.broadcast([*ckpt.parameters(self.model).values(), *self.state().values()])
        values, self._validated = found
        self._at = TrainingState.from_state(values)
        self._totals.restore(self._at.totals)
        if self._validated:
            self._at.validated(self._validated, self._job.train.best_by)

    def _validation_is_pending(self) -> bool:
        return self._limits.wants_validation(self._at) and self._validated is None

    def _validate(
        self, monitor: Monitor | None, saver: CheckpointManager | None, signals: Signals
    ) -> None:
        """Validates the weights of the latest checkpoint; a signal ends it at once."""
        at, config = self._at, self._job.train
        model = self._mean.model if self._mean else self.model
        model.eval()
        with signals.abandoning(), torch.compiler.set_stance("force_eager"):  # any shape may come
            values = validation_loss(
                model,
                self._valid,
                smoothing=config.label_smoothing,
                precision=self._precision,
                max_tokens=self._max_tokens,
                world=self._world,
            )
            if not math.isfinite(values["loss"]):
                raise not_finite("the validation loss is", at.step)
            values["bleu"], shown = self._translate(model)
        model.train()
        values = self._world.broadcast_object(values)  # of one mind about what is better
        at.validated(values, config.best_by)
        if saver and monitor:
            saver.validated(at, values)
            monitor.validation(at.step, values, shown)

    def _describe(self) -> None:
        count = sum(p.numel() for p in self.model.parameters())
        log.info(
            "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
            f"{count:,}",
            self._job.model.num_encoder_layers,
            self._job.model.num_decoder_layers,
            self._job.model.d_model,
            f"{self.model.vocab_size:,}",
        )
        log.info(
            "training: %s pairs, %s updates an epoch, %s in all, on %d × %s in %s%s",
            f"{len(self._train):,}",
            f"{self._feed.epochs.steps_per_epoch:,}",
            f"{self._limits.last_step:,}",
            self._world.size,
            self._world.device.type,
            self._precision,
            ", compiled" if self._feed.buffer_shape else "",
        )
        if self._limits.last_step < (warmup := self._job.schedule.warmup_steps):
            log.warning(
                "warning: the learning rate still rises when the run ends: its warm-up has %s "
                "updates (schedule.warmup_steps)",
                f"{warmup:,}",
            )
        if self.done:
            log.info("resuming after update %s", f"{self.done:,}")
        elif self._job.train.init_from:
            log.info("beginning with the weights of %s", self._job.train.init_from)


def _seed(*parts: int) -> int:
    """A 64-bit seed from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
