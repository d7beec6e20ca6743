"""The training loop, and nothing but the loop."""

import copy
import logging
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from transformer_mt import checkpoint as ckpt
from transformer_mt.config import TrainJob
from transformer_mt.data.batching import Batch, BatchPlan, GlobalBatch, micro_batches
from transformer_mt.data.buffers import BufferShape, buffered_batches, plan_buffers
from transformer_mt.data.loader import read_ahead
from transformer_mt.data.mixing import epoch_weights
from transformer_mt.data.store import TokenStore
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.hardware import fitting_tokens, pick_compiled, pick_precision
from transformer_mt.train.loss import smoothed_cross_entropy
from transformer_mt.train.monitor import Monitor
from transformer_mt.train.schedule import learning_rate
from transformer_mt.train.step import StepResult, TrainStep, autocast

log = logging.getLogger(__name__)

_ADVICE = (
    "lower the learning rate or lengthen the warm-up (schedule), or delete the latest checkpoints "
    "and go on from an earlier one"
)

Bleu = Callable[[Transformer], float]
"""Translates the validation set, on every rank together, and scores it."""


@dataclass(eq=False)  # not frozen: contextlib sets the traceback of what passes it
class StoppedError(Exception):
    """A signal ended training early; the latest update is in a checkpoint."""

    signal: int


class Trainer:
    """Trains until ``train.max_steps``, from the latest checkpoint if there is one.

    Args:
        job: The configuration.
        run_dir: Folder of the run.
        train: Training pairs.
        valid: Validation pairs.
        vocab_size: V.
        bleu: Validation BLEU, of the current weights.
        world: Ranks that share the run.
    """

    def __init__(
        self,
        job: TrainJob,
        run_dir: Path,
        train: TokenStore,
        valid: TokenStore,
        vocab_size: int,
        bleu: Bleu,
        world: World,
    ):
        self._job, self._run_dir, self._world, self._bleu = job, run_dir, world, bleu
        self._train, self._valid = train, valid
        self._plan = BatchPlan(
            train, job.train.batch_tokens, job.train.seed, epoch_weights(job.data, train.sources)
        )
        self._precision = pick_precision(job.train.precision, world.device)
        torch.manual_seed(job.train.seed)
        self.model = Transformer(job.model, vocab_size).to(world.device)
        self._max_tokens = job.train.max_tokens_per_device or fitting_tokens(
            job.model, world.device
        )
        self._buffers: BufferShape | None = None
        if pick_compiled(job.train.compile, job.model, world.device, self._precision):
            self._buffers = plan_buffers(train, self._plan, self._max_tokens, world.size)
            self.model.embedding.reserve(self._buffers.max_length)
        self._step = TrainStep(
            self.model,
            job.optimizer,
            job.train.label_smoothing,
            self._precision,
            world,
            compiled=self._buffers is not None,
        )
        self._checkpoints = ckpt.latest_checkpoints(run_dir / "checkpoints")
        self._done = 0
        if self._checkpoints:
            ckpt.restore(self._checkpoints[-1], self.model, self._step.optimizer)
            self._done = self._checkpoints[-1].step

    @property
    def done(self) -> int:
        """Updates done, by the latest checkpoint."""
        return self._done

    @property
    def is_finished(self) -> bool:
        """Whether the latest checkpoint is the last one."""
        return self._done >= self._job.train.max_steps

    def run(self) -> None:
        """Trains; leaves the averaged weights in ``self.model`` and in the model folder.

        Raises:
            StoppedError: SIGINT or SIGTERM came; a checkpoint was written first.
            InputError: The loss is no longer a finite number.
        """
        config, main = self._job.train, self._world.is_main
        if main:
            self._describe()
        monitor = Monitor(self._run_dir, self._done, config.max_steps) if main else None
        try:
            with _signals() as received:
                self._loop(monitor, received)
        finally:
            if monitor:
                monitor.close()
        # In a model of its own: layers that are compiled for training take no other shapes.
        self.model = Transformer(self._job.model, self.model.vocab_size).to(self._world.device)
        ckpt.average(self._checkpoints[-config.average_checkpoints :], self.model)
        if main:  # a kill may have come between the last checkpoint and this
            ckpt.save_weights(self.model, self._run_dir / ckpt.WEIGHTS)

    def _loop(self, monitor: Monitor | None, received: list[int]) -> None:
        config, world = self._job.train, self._world
        loss = nll = torch.zeros((), device=world.device)
        targets, waited = 0, 0.0
        steps = range(self._done + 1, config.max_steps + 1)
        reader = read_ahead(self._read, steps)
        for step in steps:
            begun = time.perf_counter()
            parts, num_targets = next(reader)
            waited += time.perf_counter() - begun
            seed = _seed(config.seed, step, world.rank)
            result = self._update(parts, num_targets, self._learning_rate(step), seed)
            loss, nll, targets = loss + result.loss, nll + result.nll, targets + num_targets
            if monitor:
                monitor.update(step)
            last = step == config.max_steps
            if last or step % config.log_every == 0:
                values = (world.sum(torch.stack((loss, nll))) / targets).tolist()
                self._check_finite(step, values[0])
                if monitor:
                    norm = self._step.grad_norm().item()
                    lr = self._learning_rate(step)
                    record = {"loss": values[0], "nll": values[1], "lr": lr, "grad_norm": norm}
                    monitor.training(step, targets, waited, record)
                loss = nll = torch.zeros((), device=world.device)
                targets, waited = 0, 0.0
            stop = world.any(bool(received))
            with monitor.paused() if monitor else nullcontext():
                if last or stop or step % config.checkpoint_every == 0:
                    self._save(step)
                if not stop and (last or step % config.validate_every == 0):
                    with torch.compiler.set_stance("force_eager"):  # batches are of any shape
                        validation = self._validate()
                    if monitor:
                        monitor.validation(step, validation)
                    stop = world.any(bool(received))
            if stop and not last:
                raise StoppedError(received[0] if received else signal.SIGTERM)

    def _read(self, step: int) -> tuple[list[Batch], int]:
        """This rank's share of an update, and the target tokens of the whole update."""
        batch, world = self._plan[step - 1], self._world
        if self._buffers is None:
            parts = micro_batches(self._train, batch, self._max_tokens, world.rank, world.size)
        else:
            parts = buffered_batches(self._train, batch, self._buffers, world.rank, world.size)
        if world.device.type == "cuda":
            parts = [part.pinned() for part in parts]
        return parts, batch.num_targets

    def _update(self, parts: list[Batch], num_targets: int, lr: float, seed: int) -> StepResult:
        try:
            return self._step(parts, num_targets, lr, seed)
        except torch.OutOfMemoryError:
            largest = max(len(part.tgt_out) for part in parts)
            raise InputError(
                f"out of memory on a batch of {largest:,} target tokens: lower "
                f"train.max_tokens_per_device={self._max_tokens}; the "
                "updates stay the same"
            ) from None

    def _learning_rate(self, step: int) -> float:
        job = self._job
        return learning_rate(
            step, job.schedule, d_model=job.model.d_model, max_steps=job.train.max_steps
        )

    def _save(self, step: int) -> None:
        """A checkpoint, and the model folder's weights: the mean of the last ones."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise InputError(f"the weights are no longer finite at step {step}: {_ADVICE}")
        if self._world.is_main:
            folder, last = self._run_dir / "checkpoints", self._job.train.average_checkpoints
            saved = ckpt.save_checkpoint(folder, {"step": step}, self.model, self._step.optimizer)
            # What a signal made us save between two turns has no part in the average: the run
            # ends as it would have without the signal.
            every = self._job.train.checkpoint_every
            extra = [c for c in self._checkpoints if c.step % every]
            for stale in extra:
                shutil.rmtree(stale.path)
            self._checkpoints = [
                *(c for c in self._checkpoints if c.step < step and c not in extra),
                saved,
            ]
            averaged = copy.deepcopy(self.model).cpu()
            ckpt.average(self._checkpoints[-last:], averaged)
            ckpt.save_weights(averaged, self._run_dir / ckpt.WEIGHTS)
            # Two at least: were the newest damaged, the one before it is there.
            self._checkpoints = ckpt.prune(self._checkpoints, keep=max(2, last))
        self._checkpoints = self._world.gather(self._checkpoints)[0]

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        config, world = self._job.train, self._world
        self.model.eval()
        sums = torch.zeros(2, device=world.device, dtype=torch.float64)
        for batch in _evaluation_batches(self._valid, self._max_tokens, world):
            with autocast(world.device, self._precision):
                hidden = self.model(batch)
                parts = smoothed_cross_entropy(
                    hidden, self.model.embedding.weight, batch.tgt_out, config.label_smoothing
                )
            sums += torch.stack(parts) * batch.weight
        loss, nll = (world.sum(sums) / len(self._valid.tgt.tokens)).tolist()
        values = {"loss": loss, "nll": nll, "bleu": self._bleu(self.model)}
        self.model.train()
        return values

    def _check_finite(self, step: int, loss: float) -> None:
        if not math.isfinite(loss):
            raise InputError(f"the loss became {loss} by step {step}: {_ADVICE}")

    def _describe(self) -> None:
        config, count = self._job.train, sum(p.numel() for p in self.model.parameters())
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
            f"{self._plan.steps_per_epoch:,}",
            f"{config.max_steps:,}",
            self._world.size,
            self._world.device.type,
            self._precision,
            ", compiled" if self._buffers else "",
        )
        if self._done:
            log.info("resuming after update %s", f"{self._done:,}")


def _evaluation_batches(store: TokenStore, max_tokens: int, world: World) -> Iterator[Batch]:
    """This rank's share of a set, in order of length."""
    order = np.argsort(store.tgt.lengths, kind="stable")
    everything = GlobalBatch((order,), len(store.tgt.tokens))
    for batch in micro_batches(store, everything, max_tokens, world.rank, world.size):
        yield batch.to(world.device)


def _seed(*parts: int) -> int:
    """A 64-bit seed from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM; a second one ends the process at once."""
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for handled in old:
            signal.signal(handled, signal.SIG_DFL)

    old = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
