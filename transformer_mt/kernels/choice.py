"""Choice of precision, matrix product kernel and compilation of a run, by its device.

Precisions and kernels round differently, so the choice is recorded, and a resumed run keeps it.
"""

import logging
import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.kernels.products import HAS_ONEDNN, KERNELS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernels:
    """Precision and kernel of the matrix products of a run."""

    precision: str
    """``fp32``, ``bf16`` or ``fp16``."""
    products: str = "torch"
    """One of ``KERNELS``; on a GPU and in a compiled step PyTorch's."""


def choose_kernels(
    products: str, precision: str, device: torch.device, recorded: Kernels | None = None
) -> Kernels:
    """Precision and kernel for the training of a model, by a fixed rule for each processor.

    The measurements behind it are in ``scripts/bench/RESULTS.md``.

    Args:
        products: The setting ``train.kernels``: ``auto``, ``torch`` or ``onednn``.
        precision: The setting ``train.precision``.
        device: Device of the training.
        recorded: The CPU kernels of the run so far, kept where the settings say ``auto``.
    """
    recorded = recorded if device.type == "cpu" else None
    if precision == "auto":
        precision = recorded.precision if recorded else hardware.fastest_precision(device)
    if device.type != "cpu":
        return Kernels(precision)
    if products == "auto" and recorded and recorded.precision == precision:
        if recorded.products in [*KERNELS] and (HAS_ONEDNN or recorded.products != "onednn"):
            return recorded
        log.info("the CPU kernels that this run used before are not available: choosing again")
    amd = hardware.is_amd_with_avx512()
    if precision != "fp32":  # PyTorch's are oneDNN's
        return Kernels(precision, "torch_transposed" if products == "auto" and not amd else "torch")
    by_onednn = products == "onednn" or (products == "auto" and amd)
    return Kernels(precision, "onednn" if by_onednn and HAS_ONEDNN else "torch")


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


def require_short_attention(model: ModelConfig, device: torch.device, compiled: bool) -> None:
    """Raises ``InputError`` where ``train.attention_kernel=short`` is impossible."""
    if not (device.type == "cuda" and compiled and model.key_size in (16, 32, 64, 128)):
        raise InputError(
            "train.attention_kernel=short needs a compiled step on a GPU (train.compile), and d_k "
            f"of 16, 32, 64 or 128; here: {device.type}, {'' if compiled else 'not '}compiled, "
            f"d_k={model.key_size}: remove the setting"
        )


def _has_compiler() -> bool:
    """Whether Triton finds the C compiler and the headers that it needs for host code."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    scheme = sysconfig.get_default_scheme()
    include = sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    return bool(compiler and shutil.which(compiler)) and Path(include, "Python.h").exists()
