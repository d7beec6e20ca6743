"""Set-up of a run: initial model, precision, compilation, size of batches."""

import logging
import os
import shutil
import sysconfig
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from transformer_mt.config import ModelConfig, TrainJob
from transformer_mt.data.data_diagnostics import evenly_spaced
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.model.transformer import Transformer
from transformer_mt.model_folder import ModelFolder
from transformer_mt.registries import COOCCURRENCE

log = logging.getLogger(__name__)

_COOCCURRENCES = 100_000_000
"""Maximum number of co-occurrences (squared lengths of pairs) from which embeddings are computed,
which takes up to two gigabytes and half a minute of one thread. 300,000 pairs of 18 pieces, both
sides together, have as many, and 40,000 of 50."""


def initial_model(
    job: TrainJob, tokenizer: Tokenizer, pairs: TokenStore, device: torch.device, *, replaced: bool
) -> Transformer:
    """A new model, with random weights or those of ``train.init_from``.

    Args:
        job: The configuration.
        tokenizer: The vocabulary.
        pairs: Training pairs, for ``train.initial_embeddings``.
        device: Device of the model.
        replaced: Whether all weights will be replaced, by those of a checkpoint or of the main
            rank, so that they can be random.
    """
    torch.manual_seed(job.train.seed)
    model = Transformer(job.model, tokenizer.tgt.vocab_size, tokenizer.vocab_size).to(device)
    if replaced:
        return model
    if job.train.init_from is not None:
        folder = ModelFolder(job.train.init_from, cache_dir=job.cache_dir)
        initial = evenly_spaced_layers(folder.load_model(), job.model)
        for name, tensor in model.state_dict().items():
            known = len(initial[name])
            tensor[:known].copy_(initial[name])
            if known < len(tensor):  # tags that the vocabulary of that model does not have
                tensor[known:] = initial[name].mean(0)
    elif job.train.initial_embeddings != "random":
        _set_embeddings(model, tokenizer, pairs)
    return model


@torch.no_grad()
def _set_embeddings(model: Transformer, tokenizer: Tokenizer, pairs: TokenStore) -> None:
    """Replaces the embeddings of the pieces that occur in evenly spaced pairs."""
    first = 0 if tokenizer.is_joint else tokenizer.vocab_size  # id of the first target piece
    lengths = pairs.src.lengths.astype(np.float64) + pairs.tgt.lengths
    number = int(_COOCCURRENCES / np.square(lengths).mean())
    pieces = [
        np.concatenate((pairs.src[i].astype(np.int64), first + pairs.tgt[i].astype(np.int64)))
        for i in evenly_spaced(len(pairs), min(len(pairs), number))
    ]
    size = model.embedding.weight.shape[1]
    embeddings = resolve_name(COOCCURRENCE)(pieces, first + tokenizer.tgt.vocab_size, size)
    vectors = embeddings.to(model.output_weight)
    for weight, rows in (
        (model.source_embedding.weight, vectors[: tokenizer.vocab_size]),
        (model.embedding.weight, vectors[first:]),
        (model.output_weight, vectors[first:]),
    ):
        known = rows.any(1)
        weight[known] = rows[known]


def agreed_precision(job: TrainJob, world: World) -> tuple[str, bool]:
    """Precision of a run, and whether its step is compiled, the same on all ranks.

    Args:
        job: The configuration.
        world: Ranks that share the run.

    Raises:
        InputError: ``train.compile=true`` is impossible.
    """
    precision = job.train.precision
    if precision == "auto":
        precision = world.broadcast_object(hardware.fastest_precision(world.device))
    compiled = _should_compile(job.train.compile, job.model, world.device, precision)
    return precision, not world.any(not compiled)


def _should_compile(
    choice: bool | None, model: ModelConfig, device: torch.device, precision: str
) -> bool:
    """Whether to compile the training step, for buffers of a fixed shape.

    The default (None) compiles on a GPU if its attention kernel supports the precision and the
    head sizes. On a CPU a compiled step is slow, and meant for tests.
    """
    if device.type != "cuda":
        return bool(choice)
    possible = (
        precision == "bf16"
        # With larger heads and dropout, an RTX 4090 leaves out the gradient, without an error.
        and model.key_size == model.value_size <= 192
        and model.key_size % 8 == 0
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )
    if choice and not possible:
        raise InputError(
            "train.compile=true on a GPU needs bf16, d_k = d_v, a multiple of 8 up to 192, and an "
            f"Ampere GPU or later; here: {precision}, d_k={model.key_size}, "
            f"d_v={model.value_size}, {torch.cuda.get_device_name(device)}"
        )
    if choice is False or not possible:
        return False
    if not (found := _has_compiler()):
        needs = "needs a C compiler (gcc or clang) and the Python headers (python3-dev)"
        if choice:
            raise InputError(f"train.compile=true {needs}: install them")
        log.warning("the training step runs uncompiled, which is slower: compiling it %s", needs)
    return found


def _has_compiler() -> bool:
    """Whether Triton finds the C compiler and the headers that it needs for host code."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    scheme = sysconfig.get_default_scheme()
    include = sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    return bool(compiler and shutil.which(compiler)) and Path(include, "Python.h").exists()


def default_max_tokens(
    model: ModelConfig, device: torch.device, compiled_vocab: int | None = None
) -> int:
    """Default of ``train.max_tokens_per_device``: tokens of either side in one forward pass.

    Until the backward pass a token occupies up to 200 bytes for each layer and dimension; in a
    compiled step 39 (as traced for an H100), and 4 for each logit and its gradient, of which there
    are only a few rows at a time otherwise. As much is left for weights, optimizer state and
    temporary tensors.

    Args:
        model: Sizes of the model.
        device: Device of the training.
        compiled_vocab: Number of pieces of the target if the step is compiled.
    """
    if device.type != "cuda":
        return 8192
    memory: int = torch.cuda.get_device_properties(device).total_memory
    layers = model.num_encoder_layers + model.num_decoder_layers
    saved, logits = (200, 0) if compiled_vocab is None else (39, 4 * compiled_vocab)
    return max(1024, memory // (2 * (saved * model.d_model * layers + logits)))


def evenly_spaced_layers(model: Transformer, config: ModelConfig) -> dict[str, Tensor]:
    """Weights by name for a model with fewer layers: evenly spaced ones, the first included.

    A student that starts from layers of its teacher needs few updates (Shleifer and Rush 2020,
    "shrink and fine-tune").

    Args:
        model: The model whose weights are used.
        config: Its architecture, but for the numbers of layers, which may be smaller.
    """
    weights = model.state_dict()
    decoder = evenly_spaced(len(model.decoder), config.num_decoder_layers)
    encoder = evenly_spaced(len(model.encoder), config.num_encoder_layers)
    for name, kept in (("encoder", encoder), ("decoder", decoder)):
        layers = getattr(model, name)
        for number, layer in enumerate(kept):
            for key, tensor in layers[layer].state_dict().items():
                weights[f"{name}.{number}.{key}"] = tensor
    for key, tensor in model.source_projection.state_dict().items():  # rows of each layer
        rows = tensor.unflatten(0, (len(model.decoder), -1))
        weights[f"source_projection.{key}"] = rows[decoder].flatten(0, 1)
    return weights
