"""Matrix products on a CPU: by one of several kernels in training, with packed weights in decoding.

Shapes: N rows; K input size; M output size.

Which kernel is fastest in training depends on the processor (``choice.py``).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Type of matrix products by precision."""

# A private operator of PyTorch; without it PyTorch's own choice computes all products.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Kernel(NamedTuple):
    """The products of a linear layer Y = X Wᵀ + b, where G is the gradient of Y."""

    forward: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """X Wᵀ + b: [N, K], [M, K], [M] → [N, M]."""
    input_gradient: Callable[[Tensor, Tensor], Tensor]
    """G W: [N, M], [M, K] → [N, K]."""
    weight_gradient: Callable[[Tensor, Tensor], Tensor]
    """Gᵀ X: [N, M], [N, K] → [M, K], which may be a transposed view."""


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _onednn_weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    # oneDNN is faster with the larger matrix as its second operand.
    if grad.shape[1] > x.shape[1]:
        return _onednn(x.T, grad.T).T
    return _onednn(grad.T, x.T)


KERNELS = {
    "torch": Kernel(F.linear, torch.mm, lambda grad, x: grad.T @ x),
    "torch_transposed": Kernel(F.linear, torch.mm, lambda grad, x: grad.T.contiguous() @ x),
    "onednn": Kernel(
        _onednn, lambda grad, weight: _onednn(grad, weight.T), _onednn_weight_gradient
    ),
}
"""Kernels by name: PyTorch's choice, the same for a gradient that is laid out transposed, which
some processors need in 16 bits, and oneDNN, which PyTorch uses for 16-bit products only."""


class Linear(nn.Linear):
    """``nn.Linear`` for packed tokens; in training on a CPU with a kernel of its own."""

    kernel = "torch"
    """One of ``KERNELS``."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        on_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (on_cpu and torch.is_grad_enabled()):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        y: Tensor = _Linear.apply(x.to(dtype), self.weight, self.bias, KERNELS[self.kernel])
        return y


class _Linear(torch.autograd.Function):
    """X Wᵀ + b in the type of X."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernel: Kernel) -> Tensor:
        converted = weight.to(x.dtype)
        ctx.save_for_backward(x, converted)
        ctx.kernel, ctx.weight_dtype = kernel, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        with torch.autocast("cpu", enabled=False):
            return kernel.forward(x, converted, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_bias = None if ctx.bias_dtype is None else grad.sum(0, dtype=ctx.bias_dtype)
        # In the type and layout of the weight, by at most one copy.
        grad_weight = ctx.kernel.weight_gradient(grad, x)
        grad_weight = grad_weight.to(ctx.weight_dtype, memory_format=torch.contiguous_format)
        return ctx.kernel.input_gradient(grad, weight), grad_weight.contiguous(), grad_bias, None


# Decoding.

_SMALL = 2**19
"""Multiplications; for smaller products oneDNN's overhead of 10 µs outweighs the gain."""


class PackedLinear(nn.Module):
    """X Wᵀ + b for decoding, with W converted and reordered in advance: [N, K] → [N, M].

    A decoding step multiplies each matrix with a few rows, and a CPU may spend half of that time on
    reordering the matrix into its internal layout.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        super().__init__()
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.dtype = dtype
        self.packed: Any = self.weight.to(dtype)
        self.packed_bias = None if self.bias is None else self.bias.to(dtype)
        self.has_kernel = (
            HAS_ONEDNN
            and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
            and (dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
        )
        if self.has_kernel:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.packed)

    def extra_repr(self) -> str:
        """Sizes, as ``print`` shows them for ``torch.nn.Linear``."""
        outputs, inputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}, bias={self.bias is not None}"

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        if len(x) * self.weight.numel() < _SMALL:
            return F.linear(x, self.weight, self.bias)
        x = x.to(self.dtype)
        if not self.has_kernel:
            return F.linear(x, self.packed, self.packed_bias)
        # oneDNN generates code for each number of rows, which takes time and is kept in memory: of
        # the numbers from a power of two to the next there are eight.
        padding = -len(x) % max(1, 2 ** (len(x) - 1).bit_length() // 16)
        padded = F.pad(x, (0, 0, 0, padding)) if padding else x
        return _onednn(padded, self.packed, self.packed_bias)[: len(x)]
