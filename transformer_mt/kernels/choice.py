"""How a run computes on its device: precision, kernel of matrix products, compilation.

Which precision and kernel are fastest on a CPU is measured when a run starts. They round results
differently, so the choice is recorded, and a resumed run makes the same one.
"""

import logging
import math
import os
import shutil
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from transformer_mt.config import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.kernels.products import DTYPES, HAS_ONEDNN, KERNELS, parameter_gradient

log = logging.getLogger(__name__)

_SECONDS = 1.5
"""CPU time of the measurement, after which no product is started."""

_REPETITIONS = 4
_FLOPS = 10**9
"""Maximum size of a measured product; it is measured with fewer rows than it has in training."""

_GAIN = 1.1
"""A choice must be this much faster than those before it, PyTorch's own first."""


@dataclass(frozen=True)
class Kernels:
    """Precision and kernel of the matrix products of a run."""

    precision: str
    """``fp32``, ``bf16`` or ``fp16``."""
    products: str = "torch"
    """One of ``KERNELS``; on a GPU and in a compiled step PyTorch's."""


def choose_kernels(
    products: str,
    precision: str,
    device: torch.device,
    model: ModelConfig,
    rows: int,
    recorded: Kernels | None = None,
) -> Kernels:
    """Precision and kernel for the training of a model.

    Args:
        products: The setting ``train.kernels``: ``auto``, ``torch`` or ``onednn``.
        precision: The setting ``train.precision``; ``auto`` is fp32 or, if that is faster, bf16.
        device: Device of the training; only a CPU is measured.
        model: Sizes of the model, of which the products of a feed-forward layer are measured.
        rows: Number of tokens in a forward pass.
        recorded: The choice of the run so far, kept if the settings and this version allow it.
    """
    precisions = ["fp32", "bf16"] if hardware.has_fast_bf16(device) else ["fp32"]
    if precision != "auto":
        precisions = [precision]
    elif device.type == "cuda":
        precisions = precisions[-1:]
    elif recorded is not None and recorded.precision in precisions:
        precisions = [recorded.precision]
    candidates = [
        Kernels(each, name) for each in precisions for name in _names(products, each, device)
    ]
    if recorded in candidates:
        return recorded
    if len(candidates) == 1:
        return candidates[0]
    if recorded is not None:
        log.info("the CPU kernels that this run used before are not available: choosing again")
    return _fastest(candidates, model, rows)


def _names(products: str, precision: str, device: torch.device) -> list[str]:
    """Kernels to choose from, PyTorch's first. oneDNN is what PyTorch uses for 16-bit products."""
    if products == "torch" or device.type != "cpu":
        return ["torch"]
    if precision != "fp32":
        return ["torch"] if products == "onednn" else ["torch", "torch_transposed"]
    if not HAS_ONEDNN:
        return ["torch"]
    return ["onednn"] if products == "onednn" else ["torch", "onednn"]


def _fastest(candidates: Sequence[Kernels], model: ModelConfig, rows: int) -> Kernels:
    """The first candidate as fast as any, by the products of a feed-forward layer's first matrix.

    They are computed on one thread, and its CPU time counts: several wait for the last of them,
    which on a busy machine takes longer than the product, so that bf16, though three times as fast,
    would not be chosen.
    """
    n = max(64, min(rows, _FLOPS // (2 * model.d_ff * model.d_model)))
    shapes = (n, model.d_model), (model.d_ff, model.d_model), (n, model.d_ff)
    operands = [torch.ones(shape) for shape in shapes]
    seconds, deadline = dict.fromkeys(candidates, math.inf), time.thread_time() + _SECONDS
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kernels in [*candidates] * _REPETITIONS:
            start = time.thread_time()
            if start > deadline:
                break
            with suppress(RuntimeError):  # oneDNN lacks products of some types on some processors
                _compute(kernels, *operands)
                seconds[kernels] = min(seconds[kernels], time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return next(k for k in candidates if seconds[k] <= _GAIN * min(seconds.values()))


def _compute(kernels: Kernels, x: Tensor, weight: Tensor, grad: Tensor) -> None:
    """The three products of a layer, of fp32 operands."""
    dtype, kernel = DTYPES[kernels.precision], KERNELS[kernels.products]
    x, weight, grad = x.to(dtype), weight.to(dtype), grad.to(dtype)
    kernel.forward(x, weight, None)
    kernel.input_gradient(grad, weight)
    parameter_gradient(kernel.weight_gradient(grad, x), torch.float32)


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
        and model.key_size == model.value_size <= 256
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
            "train.compile=true on a GPU needs bf16, d_k = d_v, a multiple of 8 up to 256, and an "
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
