"""The parts of a run: construction from the configuration, restoring, and the final model."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.store.epoch_stores import EpochStores
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World
from transformer_mt.model.decoder_state import BLOCK
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.ema import EMA
from transformer_mt.training.hardware import pick_compiled, pick_precision, training_tokens
from transformer_mt.training.step import TrainStep
from transformer_mt.training.stopping import StoppingCriteria
from transformer_mt.training.training_state import TrainingState

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSetup:
    """The parts of a run that the training loop uses."""

    model: Transformer
    """The model in training, on its device."""
    ema: EMA | None
    """Moving average of the weights, with ``train.final=ema``."""
    step: TrainStep
    """One update of the model."""
    batches: BatchIterator
    """This rank's micro-batches of each update."""
    criteria: StoppingCriteria
    """Intervals and limits of the run."""
    precision: str
    """``fp32``, ``bf16`` or ``fp16``."""
    max_tokens: int
    """Maximum number of tokens, of either side, in one forward pass."""

    def state(self) -> dict[str, Tensor]:
        """Everything that a checkpoint stores apart from the weights: live tensors by name."""
        return self.step.state() | (self.ema.state() if self.ema else {})


def set_up_training(
    job: TrainJob,
    train: TokenStore,
    sampled: EpochStores | None,
    valid: TokenStore,
    vocab_size: int,
    world: World,
    *,
    resuming: bool,
) -> TrainingSetup:
    """Builds all parts of a run; every rank calls it, with the arguments of ``Trainer``.

    With ``resuming``, a checkpoint will replace the initial weights.
    """
    config, device = job.train, world.device
    precision = pick_precision(config.precision, device)
    torch.manual_seed(config.seed)
    model = Transformer(job.model, vocab_size).to(device)
    if config.init_from is not None and not resuming:
        ckpt.load_weights(model, Path(config.init_from) / run_layout.WEIGHTS)
    max_tokens = config.max_tokens_per_device or training_tokens(job.model, device)
    compiled = pick_compiled(config.compile, job.model, device, precision)
    compiled = not world.any(not compiled)  # the same on all ranks: it decides the batch shapes
    batches = BatchIterator(job, train, sampled, max_tokens, compiled, world)
    if batches.buffer_shape:
        # Long enough for validation, too: a table of another size would cause a recompilation.
        max_translation = job.decode.max_source_tokens + job.decode.max_extra_tokens
        lengths = batches.buffer_shape.max_length, valid.max_length, max_translation + BLOCK
        model.embedding.reserve(max(lengths))
    ema = None if config.ema_decay is None else EMA(model, config.ema_decay)
    criteria = StoppingCriteria(config, batches.steps_per_epoch)
    batches.num_steps = criteria.last_step
    step = TrainStep(
        model,
        job.optimizer,
        config.label_smoothing,
        precision,
        world,
        clip_norm=config.clip_norm,
        compiled=compiled,
    )
    return TrainingSetup(model, ema, step, batches, criteria, precision, max_tokens)


def restore(
    checkpoint: Checkpoint | None, setup: TrainingSetup, world: World
) -> tuple[TrainingState, dict[str, float] | None]:
    """Restores all ranks from a checkpoint that only the main rank has.

    Returns:
        The position of the run, and the metrics of the checkpoint's validation, if it has one.
    """
    content: tuple[dict[str, Any], dict[str, float] | None] = ({}, None)
    if checkpoint is not None:
        ckpt.restore(checkpoint, setup.model, setup)
        content = checkpoint.state, checkpoint.validation
    state, metrics = world.broadcast_object(content)
    world.broadcast([*ckpt.parameters(setup.model).values(), *setup.state().values()])
    return TrainingState.from_json(state), metrics


def final_model(
    job: TrainJob, vocab_size: int, weights: dict[str, Tensor], world: World
) -> Transformer:
    """A new model, in ``eval`` mode, with weights by name that the main rank has.

    Not the model in training: its layers may be compiled, for batches of one shape only.
    """
    model = Transformer(job.model, vocab_size).to(world.device)
    parameters = ckpt.parameters(model)
    for name, tensor in weights.items():
        parameters[name].copy_(tensor)
    world.broadcast(parameters.values())
    return model.eval()


def log_setup(job: TrainJob, setup: TrainingSetup, num_pairs: int, done: int, world: World) -> None:
    """Logs the sizes of model and run, and the number of updates done before."""
    log.info(
        "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
        f"{sum(p.numel() for p in setup.model.parameters()):,}",
        job.model.num_encoder_layers,
        job.model.num_decoder_layers,
        job.model.d_model,
        f"{setup.model.vocab_size:,}",
    )
    log.info(
        "training: %s pairs, %s updates per epoch, %s in total, on %d × %s in %s%s",
        f"{num_pairs:,}",
        f"{setup.batches.steps_per_epoch:,}",
        f"{setup.criteria.last_step:,}",
        world.size,
        world.device.type,
        setup.precision,
        ", compiled" if setup.batches.buffer_shape else "",
    )
    if setup.criteria.last_step < (warmup := job.schedule.warmup_steps):
        log.warning(
            "warning: the run ends during its warm-up of %s updates (schedule.warmup_steps): the "
            "learning rate does not reach its peak",
            f"{warmup:,}",
        )
    if done:
        log.info("resuming after update %s", f"{done:,}")
    elif job.train.init_from:
        log.info("starting from the weights of %s", job.train.init_from)
