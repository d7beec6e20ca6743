"""Choice of CPU kernels, threads and precision by measurement, when a run starts.

What is fastest depends on the processor, the type and the shapes. The choice rounds results
differently, so it is recorded: a resumed run makes the same one, and so do later runs of the same
model on the same machine.
"""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from transformer_mt import files
from transformer_mt.batch import Packed
from transformer_mt.config import ModelConfig
from transformer_mt.kernels import hardware
from transformer_mt.model.attention import (
    ATTENTION_KERNELS,
    CrossAttention,
    SelfAttention,
    multi_head_attention,
)
from transformer_mt.model.embedding import Embedding
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.kernels.products import (
    FORWARD,
    HAS_ONEDNN,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    ProductKernels,
    parameter_gradient,
)
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import AUTOCAST_DTYPES

log = logging.getLogger(__name__)

T = TypeVar("T")

_SECONDS = 1.5
"""Maximum time of the measurement."""

_PRECISION_SECONDS = 0.5
"""Maximum time of the comparison of fp32 and bf16; a call that has begun is completed."""

_THREADS_SECONDS = 3.0
"""Maximum time of the comparison of numbers of threads; a call that has begun is completed."""

_REPETITIONS = 3
_FLOPS = 10**9
"""Maximum size of a measured product; it is measured with fewer rows than it has in training."""

_LENGTHS = [*range(17, 33)] * 4
"""Lengths of the sequences with which attention is measured: 1,568 tokens."""


@dataclass(frozen=True)
class Kernels:
    """Kernels of a model in training on a CPU."""

    products: dict[str, ProductKernels] = field(default_factory=dict)
    """Kernels of each weight by its shape, ``"MxK"``; others use PyTorch's choice."""
    attention: str = ATTENTION_KERNELS[0]
    """Kernel of attention, one of ``ATTENTION_KERNELS``."""
    precision: str | None = None
    """Precision that these kernels train in; None in records of older versions."""
    threads: int | None = None
    """Number of threads, if it was chosen: with ``train.kernels=auto`` in a single process."""

    def apply(self, model: Transformer) -> None:
        """Makes a model use these kernels."""
        for module in model.modules():
            if isinstance(module, nn.Linear | Embedding):
                module.kernels = self.products.get(_shape(module), ProductKernels())
            elif isinstance(module, SelfAttention | CrossAttention):
                module.kernel = self.attention

    @classmethod
    def from_json(cls, value: Any) -> "Kernels | None":
        """The inverse of ``asdict``; None if a kernel is unknown to this version."""
        try:
            products = {key: ProductKernels(**names) for key, names in value["products"].items()}
            threads = value.get("threads")
            kernels = cls(products, value["attention"], value.get("precision"), threads)
        except (KeyError, TypeError, AttributeError):
            return None
        is_known = kernels._is_known() and isinstance(threads, int | None)
        return kernels if is_known else None

    def _is_known(self) -> bool:
        known: tuple[Iterable[str], ...] = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
        if self.precision not in (None, "fp32", *AUTOCAST_DTYPES):
            return False
        return self.attention in ATTENTION_KERNELS and all(
            isinstance(name, str) and name in names
            for product in self.products.values()
            for name, names in zip(asdict(product).values(), known, strict=True)
        )

    def __str__(self) -> str:
        names = [name for kernels in self.products.values() for name in asdict(kernels).values()]
        counts = (f"{name} {count}" for name, count in Counter(names).most_common())
        return f"matrix products: {', '.join(counts)}; attention: {self.attention}"


def named_kernels(name: str, model: Transformer, dtype: torch.dtype) -> Kernels:
    """The kernels of ``train.kernels=torch`` or ``onednn``, which computes fp32 products only."""
    chosen = ProductKernels()
    if name == "onednn" and HAS_ONEDNN and dtype == torch.float32:
        chosen = ProductKernels("onednn", "onednn", "onednn")
    return Kernels(dict.fromkeys(_weights(model), chosen))


def choose_threads(config: ModelConfig, recorded: int | None, cache: Path) -> int:
    """Number of threads for training: one per core or one per hardware thread, if that is faster.

    ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` decides if it is set.

    Args:
        config: Sizes of the model, of which an encoder layer is measured.
        recorded: Number of threads of the run so far, kept if it is one of the two.
        cache: JSON file with the choices of earlier runs on this machine.
    """
    default = torch.get_num_threads()
    counts = {default}
    if not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys():
        counts.add(hardware.available_cores())
    if recorded in counts:
        return recorded
    if len(counts) == 1:
        return default
    sizes = config.d_model, config.d_ff, config.num_heads, config.key_size
    key = f"{_machine()}, threads {sorted(counts)}, sizes {sizes}"
    known = _read(cache)
    if (threads := known.get(key)) in counts:
        return int(threads)
    layer = EncoderLayer(config)
    lengths = _LENGTHS[:16]
    layout = Packed.from_sequences([[0] * length for length in lengths]).layout
    x = torch.randn(sum(lengths), config.d_model)

    def compute(threads: int) -> None:
        torch.set_num_threads(threads)
        layer(x, layout).sum().backward()

    compute(default)  # warms up
    candidates = {count: partial(compute, count) for count in (default, *counts - {default})}
    threads = _fastest(candidates, deadline=time.perf_counter() + _THREADS_SECONDS)
    torch.set_num_threads(default)
    log.info("threads: %d (%s were timed)", threads, " and ".join(map(str, candidates)))
    _write(cache, {**known, key: threads})
    return threads


def choose_precision(config: ModelConfig, rows: int, cache: Path) -> str:
    """``bf16`` if it is faster than fp32 on this CPU in the products of a feed-forward layer.

    Args:
        config: Sizes of the model.
        rows: Number of tokens in a forward pass.
        cache: JSON file with the choices of earlier runs on this machine.
    """
    key = f"{_machine()}, precision, {rows} rows, {config.d_ff}x{config.d_model}"
    known = _read(cache)
    if (precision := known.get(key)) in ("fp32", "bf16"):
        return str(precision)
    n = max(64, min(rows, _FLOPS // (2 * config.d_ff * config.d_model)))
    shapes = (n, config.d_model), (config.d_ff, config.d_model), (n, config.d_ff)
    operands = [torch.randn(shape) for shape in shapes]

    def compute(kernel: str, dtype: torch.dtype) -> None:
        x, weight, grad = (operand.to(dtype) for operand in operands)
        for left, right in ((x, weight), (grad, weight.T), (grad.T, x.T)):
            FORWARD[kernel](left, right, None).float()

    # In each precision, training uses the faster kernel.
    candidates = {
        (precision, kernel): partial(compute, kernel, dtype)
        for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        for kernel in _usable(FORWARD)
    }
    precision, _ = _fastest(candidates, deadline=time.perf_counter() + _PRECISION_SECONDS)
    log.info("precision: %s (fp32 and bf16 were timed)", precision)
    _write(cache, {**known, key: precision})
    return precision


def choose_kernels(model: Transformer, dtype: torch.dtype, rows: int, cache: Path) -> Kernels:
    """The fastest kernels for a model on this machine, measured now or by an earlier run.

    Args:
        model: Model to train, on the CPU.
        dtype: Type of the matrix products.
        rows: Number of tokens in a forward pass.
        cache: JSON file with the choices of earlier runs on this machine.
    """
    weights = _weights(model)
    heads = f"{model.config.num_heads} heads of {model.config.key_size}"
    key = f"{_machine()}, {dtype}, {rows} rows, {heads}, {' '.join(weights)}"
    known = _read(cache)
    if (kernels := Kernels.from_json(known.get(key))) is not None:
        return kernels
    start = time.perf_counter()
    kernels = _measure(model, weights, dtype, rows, deadline=start + _SECONDS)
    log.info("measured CPU kernels for %.1f s", time.perf_counter() - start)
    _write(cache, {**known, key: asdict(kernels)})
    return kernels


def _measure(
    model: Transformer, weights: Iterable[str], dtype: torch.dtype, rows: int, deadline: float
) -> Kernels:
    """Times the kernels of each weight, and of attention, on random numbers."""
    attention = _fastest(_attention_candidates(model.config, dtype), deadline)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    biased = {_shape(linear) for linear in linears if linear.bias is not None}
    products = {}
    for shape in weights:
        num_outputs, num_inputs = map(int, shape.split("x"))
        n = max(64, min(rows, _FLOPS // (2 * num_outputs * num_inputs)))
        x, weight, grad = (
            torch.randn(size, dtype=dtype)
            for size in ((n, num_inputs), (num_outputs, num_inputs), (n, num_outputs))
        )
        bias = torch.randn(num_outputs, dtype=dtype) if shape in biased else None
        products[shape] = ProductKernels(
            forward=_fastest(_product_candidates(FORWARD, x, weight, bias), deadline),
            input_gradient=_fastest(_product_candidates(INPUT_GRADIENT, grad, weight), deadline),
            weight_gradient=_fastest(_weight_gradient_candidates(grad, x), deadline),
        )
    return Kernels(products, attention)


def _product_candidates(
    kernels: Mapping[str, Callable[..., Tensor]], *arguments: Tensor | None
) -> dict[str, Callable[[], Tensor]]:
    return {name: partial(kernel, *arguments) for name, kernel in _usable(kernels).items()}


def _weight_gradient_candidates(grad: Tensor, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """With the copy that some of them need, as they are used."""

    def compute(kernel: Callable[[], Tensor]) -> Tensor:
        return parameter_gradient(kernel(), torch.float32)

    candidates = _product_candidates(WEIGHT_GRADIENT, grad, x)
    return {name: partial(compute, kernel) for name, kernel in candidates.items()}


def _usable(kernels: Mapping[str, T]) -> dict[str, T]:
    """The kernels that this PyTorch has."""
    return {name: f for name, f in kernels.items() if HAS_ONEDNN or not name.startswith("onednn")}


def _attention_candidates(config: ModelConfig, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """Forward and backward passes of self-attention over sentences."""
    sequences = [[0] * length for length in _LENGTHS]
    layout, num_tokens = Packed.from_sequences(sequences).layout, sum(_LENGTHS)
    query, key, value = (
        torch.randn(num_tokens, config.num_heads * size, dtype=dtype, requires_grad=True)
        for size in (config.key_size, config.key_size, config.value_size)
    )

    def run(kernel: str) -> None:
        heads = multi_head_attention(
            query, key, value, layout, layout, config.num_heads, kernel=kernel
        )
        heads.sum().backward()

    return {kernel: partial(run, kernel) for kernel in ATTENTION_KERNELS}


def _fastest(candidates: Mapping[T, Callable[[], object]], deadline: float) -> T:
    """Name of the fastest function, by the calls until the deadline; without any, the first."""
    names = list(candidates)
    seconds: dict[T, list[float]] = {name: [] for name in names}
    for name in names * (1 + _REPETITIONS):
        if time.perf_counter() > deadline:
            break
        if name in seconds:
            start = time.perf_counter()
            try:
                candidates[name]()
            except RuntimeError:  # oneDNN has no 16-bit products for some processors
                del seconds[name]
            else:
                seconds[name].append(time.perf_counter() - start)
    called = {name: times for name, times in seconds.items() if times}
    # The first call only warms up, unless there was no time for a second one of each.
    first = 1 if all(len(times) > 1 for times in seconds.values()) else 0
    return min(called, key=lambda name: min(called[name][first:]), default=names[0])


def _weights(model: Transformer) -> list[str]:
    """Shapes of the weights that products are computed with, each once."""
    modules = (m for m in model.modules() if isinstance(m, nn.Linear | Embedding))
    return list(dict.fromkeys(_shape(module) for module in modules))


def _shape(module: nn.Linear | Embedding) -> str:
    return "x".join(map(str, module.weight.shape))


def _machine() -> str:
    cpu = hardware.exact_model(torch.device("cpu"))
    return f"{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _write(cache: Path, known: dict[str, Any]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(cache, json.dumps(known, indent=2))
    except OSError as error:  # the measurement is repeated next time
        log.warning("cannot write %s: %s", cache, error.strerror)


def _read(cache: Path) -> dict[str, Any]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
