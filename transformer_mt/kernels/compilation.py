"""Whether the training step of a run is compiled, by its device."""

import logging
import os
import shutil
import sysconfig
from pathlib import Path

import torch

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError

log = logging.getLogger(__name__)


def should_compile(
    choice: bool | None, model: ModelConfig, device: torch.device, precision: str
) -> bool:
    """Whether to compile the training step, for buffers of a fixed shape.

    The default (None) compiles on a GPU if its attention kernel supports the precision and the
    head sizes. On a CPU a compiled step is slow, and meant for tests.

    Args:
        choice: The setting ``train.compile``.
        model: Sizes of the model.
        device: Device of the training.
        precision: ``fp32``, ``bf16`` or ``fp16``.

    Raises:
        InputError: ``train.compile=true`` is impossible: no suitable kernel or no C compiler.
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
    if choice is not False and possible and not _has_compiler():
        needs = "needs a C compiler (gcc or clang) and the Python headers (python3-dev)"
        if choice:
            raise InputError(f"train.compile=true {needs}: install them")
        log.warning("the training step runs uncompiled, which is slower: compiling it %s", needs)
        return False
    if choice and not possible:
        raise InputError(
            "train.compile=true on a GPU needs bf16, d_k = d_v, a multiple of 8 up to 192, and an "
            f"Ampere GPU or later; here: {precision}, d_k={model.key_size}, "
            f"d_v={model.value_size}, {torch.cuda.get_device_name(device)}"
        )
    return possible if choice is None else choice


def _has_compiler() -> bool:
    """Whether Triton finds the C compiler and the headers that it needs for host code."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    scheme = sysconfig.get_default_scheme()
    include = sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    return bool(compiler and shutil.which(compiler)) and Path(include, "Python.h").exists()
