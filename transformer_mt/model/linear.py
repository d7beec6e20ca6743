"""``nn.Linear`` with faster fp32 matrix products for training on a CPU.

Shapes: N rows; K input size; M output size.

PyTorch multiplies fp32 matrices with MKL, which uses 256-bit vectors only on AMD processors; oneDNN
uses the widest there are and is up to twice as fast there. oneDNN generates code for each new
shape, so it pays in training, where products are large, and not in decoding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# A private operator of PyTorch; without it MKL computes all products.
_AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _for_onednn(x: Tensor) -> bool:
    usable = _AVAILABLE and not torch.compiler.is_compiling()
    return usable and x.device.type == "cpu" and x.dtype == torch.float32


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b, not differentiable: [N, K], [M, K], [M] → [N, M]."""
    if _for_onednn(x):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Gradient of W in X Wᵀ, Gᵀ X: [N, M], [N, K] → [M, K]."""
    if not _for_onednn(x):
        return grad.T @ x
    if grad.shape[1] > x.shape[1]:
        return product(x.T, grad.T).T  # oneDNN writes a wide result up to five times as fast
    return product(grad.T, x.T)


class Linear(nn.Linear):
    """``nn.Linear`` for packed tokens; fp32 training on a CPU uses oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        training = torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        if training and _for_onednn(x):
            y: Tensor = _Linear.apply(x, self.weight, self.bias)
            return y
        return super().forward(x)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_bias = grad.sum(0) if ctx.has_bias else None
        return product(grad, weight.T), weight_gradient(grad, x), grad_bias
