"""Components of a training run, built from its configuration."""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.batching.pair_sampling import PairSampler
from transformer_mt.data.store.corpus import Corpus
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.distributed.world import World
from transformer_mt.kernels.choice import Kernels, choose_kernels, should_compile
from transformer_mt.kernels.shapes import default_max_tokens
from transformer_mt.model.decoder_state import BLOCK
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import EMA
from transformer_mt.training.progress import StoppingCriteria
from transformer_mt.training.step import TrainStep

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """The data of a run."""

    train: Corpus
    """Training pairs."""
    valid: TokenStore
    """Validation pairs."""
    vocab_size: int
    """Number of pieces of the target, V."""
    sampler: PairSampler | None = None
    """Samples the training pairs in each epoch (``data.augment``, ``tokenizer.sampling``)."""
    src_vocab_size: int | None = None
    """Number of pieces of the source; None: V."""


class TrainingComponents:
    """Model, training step, batches and stopping criteria of a run, on one rank.

    Args:
        job: Configuration.
        data: Training and validation data.
        world: Ranks that share the run.
        recorded_kernels: CPU kernels of an earlier start of the run, on the main rank.
        resuming: Whether a checkpoint will replace the initial weights.

    Attributes:
        model: The model in training, on its device.
        ema: Moving average of the weights, with ``train.final=ema``.
        step: One update of the model.
        batches: This rank's micro-batches of each update.
        criteria: Intervals and limits of the run.
        kernels: Precision and kernel of the matrix products.
        max_tokens: Maximum number of tokens, of either side, in one forward pass.
        micro_batch_tokens: Approximate number of them in one forward pass of training.
    """

    def __init__(
        self,
        job: TrainJob,
        data: TrainingData,
        world: World,
        recorded_kernels: Kernels | None,
        *,
        resuming: bool,
    ):
        config, device = job.train, world.device
        torch.manual_seed(config.seed)
        self.model = Transformer(job.model, data.vocab_size, data.src_vocab_size).to(device)
        if config.init_from is not None and not resuming:
            folder = model_folder.locate(config.init_from, job.cache_dir)
            initial = ckpt.parameters(model_folder.load_model(folder)[0])
            for name, tensor in ckpt.parameters(self.model).items():
                known = len(initial[name])
                tensor[:known].copy_(initial[name])
                if known < len(tensor):  # tags that the vocabulary of that model does not have
                    tensor[known:] = initial[name].mean(0)
        self.max_tokens = config.max_tokens_per_device or default_max_tokens(job.model, device)
        self.micro_batch_tokens = min(self.max_tokens, config.batch_tokens // world.size)
        # Ranks that measure at the same time would disturb each other.
        chosen = None
        if world.is_main:
            settings = config.kernels, config.precision, device, job.model
            chosen = choose_kernels(*settings, self.micro_batch_tokens, recorded_kernels)
        kernels = world.broadcast_object(chosen)
        assert kernels is not None
        self.kernels = kernels
        compiled = should_compile(config.compile, job.model, device, kernels.precision)
        # The same on all ranks: it decides the batch shapes.
        compiled = not world.any(not compiled)
        self.batches = BatchIterator(
            job, data.train, data.sampler, self.max_tokens, compiled, world
        )
        if shape := self.batches.buffer_shape:
            # Long enough for validation, too: a table of another size would cause a recompilation.
            max_translation = job.decode.max_source_tokens + job.decode.max_extra_tokens
            lengths = shape.max_length, data.valid.max_length, max_translation + BLOCK
            for embedding in {self.model.source_embedding, self.model.embedding}:
                embedding.reserve(max(lengths))
        self.ema = None if config.ema_decay is None else EMA(self.model, config.ema_decay)
        self.criteria = StoppingCriteria(config, self.batches.steps_per_epoch)
        self.step = TrainStep(
            self.model,
            job.optimizer,
            config.label_smoothing,
            kernels.precision,
            world,
            kernel=kernels.products,
            clip_norm=config.clip_norm,
            compiled=compiled,
        )

    def optimizer_state(self) -> dict[str, Tensor]:
        """Live tensors that a checkpoint stores apart from the weights, by name."""
        return self.step.state() | (self.ema.state() if self.ema else {})


def log_components(
    job: TrainJob, components: TrainingComponents, num_pairs: int, done: int, world: World
) -> None:
    """Logs the sizes of model and run, and the number of updates already done."""
    log.info(
        "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
        f"{sum(map(torch.numel, components.model.parameters())):,}",
        job.model.num_encoder_layers,
        job.model.num_decoder_layers,
        job.model.d_model,
        f"{components.model.vocab_size:,}",
    )
    last_step = components.criteria.last_step
    log.info(
        "training: %s pairs, %s updates per epoch, %s in total, on %d × %s in %s%s",
        f"{num_pairs:,}",
        f"{components.batches.steps_per_epoch:,}",
        f"{last_step:,}",
        world.size,
        world.device.type,
        components.kernels.precision,
        ", compiled" if components.batches.buffer_shape else "",
    )
    if world.device.type == "cpu":
        log.info("matrix products by %s", components.kernels.products)
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
