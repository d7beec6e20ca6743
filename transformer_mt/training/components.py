"""Components of a training run, built from its configuration."""

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_reference, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.batching.sampled_segmentation import SampledSegmentation
from transformer_mt.data.store.corpus import Corpus
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed import World
from transformer_mt.files import expand_user
from transformer_mt.model.decoder_state import BLOCK
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.ema import EMA
from transformer_mt.training.hardware import default_max_tokens, pick_precision, should_compile
from transformer_mt.training.kernels import (
    Kernels,
    choose_kernels,
    choose_precision,
    choose_threads,
    named_kernels,
)
from transformer_mt.training.step import AUTOCAST_DTYPES, TrainStep
from transformer_mt.training.stopping import StoppingCriteria

log = logging.getLogger(__name__)

_SAMPLED_STEPS = 8
"""Updates whose padding is logged at the start."""


@dataclass(frozen=True)
class TrainingComponents:
    """Model, training step, batches and stopping criteria of a run."""

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
    kernels: Kernels | None
    """Kernels of the training step on a CPU; None on a GPU and for a compiled step."""
    max_tokens: int
    """Maximum number of tokens, of either side, in one forward pass."""
    micro_batch_tokens: int
    """Approximate number of tokens, of either side, in one forward pass of training."""

    def optimizer_state(self) -> dict[str, Tensor]:
        """Live tensors that a checkpoint stores apart from the weights, by name."""
        return self.step.state() | (self.ema.state() if self.ema else {})


def build_components(
    job: TrainJob,
    train: Corpus,
    segmentation: SampledSegmentation | None,
    valid: TokenStore,
    vocab_size: int,
    world: World,
    recorded_kernels: Kernels | None,
    *,
    resuming: bool,
) -> TrainingComponents:
    """Builds the components on one rank, from the arguments of ``Trainer``.

    With ``resuming``, a checkpoint will replace the initial weights.
    """
    config, device = job.train, world.device
    precision = pick_precision(config.precision, device)
    torch.manual_seed(config.seed)
    model = Transformer(job.model, vocab_size).to(device)
    if config.init_from is not None and not resuming:
        folder = model_reference.resolve(config.init_from)
        ckpt.load_weights(model, folder / run_layout.WEIGHTS)
    max_tokens = config.max_tokens_per_device or default_max_tokens(job.model, device)
    micro_batch_tokens = min(max_tokens, config.batch_tokens // world.size)
    compiled = should_compile(config.compile, job.model, device, precision)
    # The same on all ranks: it decides the batch shapes.
    compiled = not world.any(not compiled)
    kernels = None
    if device.type == "cpu" and not compiled:
        kernels = _kernels(job, model, precision, micro_batch_tokens, recorded_kernels, world)
        kernels.apply(model)
        precision = kernels.precision or precision
    batches = BatchIterator(job, train, segmentation, max_tokens, compiled, world)
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
    return TrainingComponents(
        model=model,
        ema=ema,
        step=step,
        batches=batches,
        criteria=criteria,
        precision=precision,
        kernels=kernels,
        max_tokens=max_tokens,
        micro_batch_tokens=micro_batch_tokens,
    )


def _kernels(
    job: TrainJob,
    model: Transformer,
    precision: str,
    rows: int,
    recorded: Kernels | None,
    world: World,
) -> Kernels:
    """The main rank's choice of CPU kernels and precision, the same on all ranks, and of threads.

    With ``train.precision=auto``, ``precision`` is bf16 if the processor has instructions for it.
    """
    kernels, threads = recorded, None
    cache = expand_user(job.cache_dir) / "kernels.json"
    # Several ranks that measure at the same time would disturb each other.
    if world.size == 1 and job.train.kernels == "auto":
        threads = choose_threads(job.model, recorded.threads if recorded else None, cache)
        torch.set_num_threads(threads)
    if world.is_main:
        if job.train.precision == "auto" and recorded is not None:
            precision = recorded.precision or precision
        elif job.train.precision == "auto" and precision == "bf16":
            precision = choose_precision(job.model, rows, cache)
        dtype = AUTOCAST_DTYPES.get(precision, torch.float32)
        if job.train.kernels != "auto":
            kernels = named_kernels(job.train.kernels, model, dtype)
        elif kernels is None:
            kernels = choose_kernels(model, dtype, rows, cache)
        kernels = replace(kernels, precision=precision, threads=threads)
    chosen = world.broadcast_object(kernels)
    assert chosen is not None
    return chosen


def log_components(
    job: TrainJob, components: TrainingComponents, num_pairs: int, done: int, world: World
) -> None:
    """Logs the sizes of model and run, and the number of updates already done."""
    log.info(
        "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
        f"{sum(p.numel() for p in components.model.parameters()):,}",
        job.model.num_encoder_layers,
        job.model.num_decoder_layers,
        job.model.d_model,
        f"{components.model.vocab_size:,}",
    )
    last_step = components.criteria.last_step
    upcoming = range(done + 1, min(done + _SAMPLED_STEPS, last_step) + 1)
    log.info(
        "training: %s pairs, %s updates per epoch, %s in total, on %d × %s in %s%s, %.1f%% padding",
        f"{num_pairs:,}",
        f"{components.batches.steps_per_epoch:,}",
        f"{last_step:,}",
        world.size,
        world.device.type,
        components.precision,
        ", compiled" if components.batches.buffer_shape else "",
        100 * components.batches.padding_share(upcoming),
    )
    if components.kernels is not None:
        log.info("%s", components.kernels)
    if last_step < (warmup := job.schedule.warmup_steps):
        log.warning(
            "warning: the run ends during its warm-up of %s updates (schedule.warmup_steps): the "
            "learning rate does not reach its peak",
            f"{warmup:,}",
        )
    if done:
        log.info("resuming after update %s", f"{done:,}")
    elif job.train.init_from:
        log.info("starting from the weights of %s", job.train.init_from)
