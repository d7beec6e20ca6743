"""``nn.Linear`` with a choice of kernels for training on a CPU.

Shapes: N rows; K input size; M output size.

Which kernel computes a product fastest depends on the processor, the type and the shape: in fp32
MKL on Intel and oneDNN on recent AMD processors, for instance. ``ProductKernels`` names the choice
for one weight; ``training/kernels.py`` measures which is best.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Product = Callable[[Tensor, Tensor], Tensor]
BiasedProduct = Callable[[Tensor, Tensor, Tensor | None], Tensor]

# A private operator of PyTorch; without it PyTorch's own choice computes all products.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b by oneDNN."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


FORWARD: dict[str, BiasedProduct] = {"torch": F.linear, "onednn": _onednn}
"""Kernels of X Wᵀ + b: [N, K], [M, K], [M] → [N, M]."""

INPUT_GRADIENT: dict[str, Product] = {
    "torch": lambda grad, weight: grad @ weight,
    "onednn": lambda grad, weight: _onednn(grad, weight.T),
}
"""Kernels of the gradient of X, G W: [N, M], [M, K] → [N, K]."""

WEIGHT_GRADIENT: dict[str, Product] = {
    "torch": lambda grad, x: grad.T @ x,
    "torch_transposed": lambda grad, x: grad.T.contiguous() @ x,
    "torch_input_transposed": lambda grad, x: (x.T.contiguous() @ grad).T,
    "onednn": lambda grad, x: _onednn(grad.T, x.T),
    "onednn_transposed": lambda grad, x: _onednn(x.T, grad.T).T,
}
"""Kernels of the gradient of W, Gᵀ X: [N, M], [N, K] → [M, K]."""


@dataclass(frozen=True)
class ProductKernels:
    """The kernels of one weight's three products, by name."""

    forward: str = "torch"
    """In ``FORWARD``."""
    input_gradient: str = "torch"
    """In ``INPUT_GRADIENT``."""
    weight_gradient: str = "torch"
    """In ``WEIGHT_GRADIENT``."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X Wᵀ + b: [N, K], [M, K], [M] → [N, M]."""
        return FORWARD[self.forward](x, weight, bias)

    def input_grad(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W: [N, M], [M, K] → [N, K]."""
        return INPUT_GRADIENT[self.input_gradient](grad, weight)

    def weight_grad(self, grad: Tensor, x: Tensor) -> Tensor:
        """Gᵀ X: [N, M], [N, K] → [M, K], which may be a transposed view."""
        return WEIGHT_GRADIENT[self.weight_gradient](grad, x)


TORCH_KERNELS = ProductKernels()
"""PyTorch's own choice for each product."""


class Linear(nn.Linear):
    """``nn.Linear`` for packed tokens; in training on a CPU it uses ``kernels``."""

    kernels = TORCH_KERNELS
    converted: Tensor | None = None
    """The weight in another type, inside ``converted_weights``."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        on_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (on_cpu and torch.is_grad_enabled()):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        weight = self.weight.detach() if self.converted is None else self.converted
        y: Tensor = _Linear.apply(
            x.to(dtype), self.weight, weight.to(dtype), self.bias, self.kernels
        )
        return y


def parameter_gradient(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight's gradient in the type and layout of the weight, by at most one copy."""
    return grad.to(dtype, memory_format=torch.contiguous_format).contiguous()


@contextmanager
def converted_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Converts the weights of all ``Linear`` layers once, for the forward passes in the block.

    Autocast would convert them in each. The weights must not change in the block.
    """
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    for layer in layers:
        layer.converted = layer.weight.detach().to(dtype)
    try:
        yield
    finally:
        for layer in layers:
            layer.converted = None


class _Linear(torch.autograd.Function):
    """X Wᵀ + b; ``converted`` is W in the type of X."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        converted: Tensor,
        bias: Tensor | None,
        kernels: ProductKernels,
    ) -> Tensor:
        ctx.save_for_backward(x, converted)
        ctx.kernels, ctx.weight_dtype = kernels, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        with torch.autocast("cpu", enabled=False):
            return kernels.product(x, converted, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_bias = None if ctx.bias_dtype is None else grad.sum(0, dtype=ctx.bias_dtype)
        grad_weight = parameter_gradient(ctx.kernels.weight_grad(grad, x), ctx.weight_dtype)
        return ctx.kernels.input_grad(grad, weight), grad_weight, None, grad_bias, None
