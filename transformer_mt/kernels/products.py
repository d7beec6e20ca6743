"""Matrix products on a CPU: their gradients in training, and with packed weights in decoding.

Shapes: N rows; K input size; M output size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.kernels import hardware


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Gᵀ X, the gradient of the weight in Y = X Wᵀ, where G is that of Y: [N, M], [N, K] → [M, K].

    In 16 bits on a CPU a transposed copy of G is faster, except on AMD with AVX-512
    (``scripts/bench/RESULTS.md``).
    """
    on_cpu = grad.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and grad.itemsize == 2 and not hardware.is_amd_with_avx512():
        return grad.T.contiguous() @ x
    return grad.T @ x


class Linear(nn.Linear):
    """``nn.Linear`` for packed tokens, in training on a CPU with gradients of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        on_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (on_cpu and torch.is_grad_enabled()):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        y: Tensor = _Linear.apply(x.to(dtype), self.weight, self.bias)
        return y


class _Linear(torch.autograd.Function):
    """X Wᵀ + b in the type of X."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        converted = weight.to(x.dtype)
        ctx.save_for_backward(x, converted)
        ctx.weight_dtype = weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        with torch.autocast("cpu", enabled=False):
            return F.linear(x, converted, None if bias is None else bias.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_bias = None if ctx.bias_dtype is None else grad.sum(0, dtype=ctx.bias_dtype)
        # In the type and layout of the weight, by at most one copy.
        grad_weight = weight_gradient(grad, x).to(ctx.weight_dtype)
        return grad @ weight, grad_weight, grad_bias


# Decoding.

_SMALL = 2**19
"""Multiplications; for smaller products oneDNN's overhead of 10 µs outweighs the gain."""


# A private operator of PyTorch; without it PyTorch reorders the weights in each product.
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


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
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            padded, self.packed, self.packed_bias, "none", [], ""
        )
        return y[: len(x)]
