"""Components of a training run: initial model, kernels, and a description for the log."""

import logging

import torch

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder
from transformer_mt.config import TrainJob
from transformer_mt.data.batching.batch_iterator import BatchIterator
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.distributed.world import World
from transformer_mt.kernels.choice import Kernels, choose_kernels
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.progress import StoppingCriteria

log = logging.getLogger(__name__)


def initial_model(
    job: TrainJob, tokenizer: Tokenizer, device: torch.device, *, resuming: bool
) -> Transformer:
    """The model before its first update: random weights, or those of ``train.init_from``.

    Args:
        job: Configuration.
        tokenizer: The vocabulary.
        device: Device of the model.
        resuming: Whether a checkpoint will replace the weights.
    """
    config = job.train
    torch.manual_seed(config.seed)
    model = Transformer(job.model, tokenizer.tgt.vocab_size, tokenizer.vocab_size).to(device)
    if config.init_from is not None and not resuming:
        folder = model_folder.locate(config.init_from, job.cache_dir)
        initial = ckpt.parameters(model_folder.load_model(folder)[0])
        for name, tensor in ckpt.parameters(model).items():
            known = len(initial[name])
            tensor[:known].copy_(initial[name])
            if known < len(tensor):  # tags that the vocabulary of that model does not have
                tensor[known:] = initial[name].mean(0)
    return model


def agreed_kernels(
    job: TrainJob, micro_batch_tokens: int, recorded: Kernels | None, world: World
) -> Kernels:
    """Precision and kernel of the matrix products, chosen by the main rank for all ranks.

    Args:
        job: Configuration.
        micro_batch_tokens: Approximate number of tokens in one forward pass of training.
        recorded: CPU kernels of an earlier start of the run, on the main rank.
        world: Ranks that share the run. Only one measures: several would disturb each other.
    """
    kernels = None
    if world.is_main:
        settings = job.train.kernels, job.train.precision, world.device, job.model
        kernels = choose_kernels(*settings, micro_batch_tokens, recorded)
    kernels = world.broadcast_object(kernels)
    assert kernels is not None
    return kernels


def log_components(
    job: TrainJob,
    model: Transformer,
    kernels: Kernels,
    batches: BatchIterator,
    criteria: StoppingCriteria,
    *,
    num_pairs: int,
    done: int,
    world: World,
) -> None:
    """Logs the sizes of model and run, and the number of updates already done."""
    log.info(
        "model: %s parameters, %d + %d layers, d_model %d, vocabulary %s",
        f"{sum(map(torch.numel, model.parameters())):,}",
        job.model.num_encoder_layers,
        job.model.num_decoder_layers,
        job.model.d_model,
        f"{model.vocab_size:,}",
    )
    log.info(
        "training: %s pairs, %s updates per epoch, %s in total, on %d × %s in %s%s",
        f"{num_pairs:,}",
        f"{batches.steps_per_epoch:,}",
        f"{criteria.last_step:,}",
        world.size,
        world.device.type,
        kernels.precision,
        ", compiled" if batches.buffer_shape else "",
    )
    if world.device.type == "cpu":
        log.info("matrix products by %s", kernels.products)
    if criteria.last_step < (warmup := job.schedule.warmup_steps):
        log.warning(
            "warning: the run ends during its warm-up of %s updates (schedule.warmup_steps): the "
            "learning rate does not reach its peak",
            f"{warmup:,}",
        )
    if done:
        log.info("resuming after update %s", f"{done:,}")
    elif job.train.init_from:
        log.info("starting from the weights of %s", job.train.init_from)
