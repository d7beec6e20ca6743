"""Matrix products, by the faster of the two libraries that PyTorch has for them on a CPU.

In fp32 PyTorch multiplies with MKL. On the AMD processor where we measured (Zen 4), oneDNN, which
it uses for bf16, takes less time for x Wᵀ and for the gradient of x; for that of W it takes more.
It generates code for every new shape, so it pays in training, where products are large, and not in
decoding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Not a public name: where it is gone, MKL does all products.
_AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X Wᵀ + b, without a gradient: [N, K], [M, K], [M] → [N, M]."""
    usable = _AVAILABLE and not torch.compiler.is_compiling()
    if usable and x.device.type == "cpu" and x.dtype == torch.float32:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """``nn.Linear`` for flat [N, K] tokens; in training in fp32 on a CPU by ``product``."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, K] → [N, M]."""
        plain = (
            not torch.is_grad_enabled()
            or x.device.type != "cpu"
            or x.dtype != torch.float32
            or torch.is_autocast_enabled("cpu")
            or torch.compiler.is_compiling()
        )
        if plain:
            return super().forward(x)
        y: Tensor = _Linear.apply(x, self.weight, self.bias)
        return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        return product(grad, weight.T), grad.T @ x, grad.sum(0) if ctx.has_bias else None
