"""A model made ready for decoding: other number types, and matrices laid out for small products.

In decoding a matrix meets a few rows at a time, and half of the time may go into bringing it into
the order that the processor multiplies in. oneDNN, the library that PyTorch has for it on a CPU,
can do that once and for all: with 4 rows a product takes half as long, with 64 nine tenths.
"""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.model.embedding import Embedding
from transformer_mt.model.transformer import Transformer

# Not public names: where they are gone, matrices stay as they are.
_PACKS = torch.backends.mkldnn.is_available() and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)

_SMALL = 2**19
"""Multiplications: a smaller product is over before oneDNN, which takes 10 µs, has begun."""


def for_inference(model: Transformer, dtype: torch.dtype = torch.float32) -> Transformer:
    """The same model for decoding alone, computing in ``dtype``.

    Args:
        model: In ``eval`` mode; later changes of its weights may or may not be seen.
        dtype: On a CPU matrix products and attention are in it, all else in fp32.
    """
    if model.embedding.weight.device.type != "cpu":
        if model.embedding.weight.dtype == dtype:
            return model
        twin = copy.deepcopy(model).to(dtype)
        if twin.embedding.weight.device.type == "cuda":  # over the method
            vars(twin.embedding)["logits"] = partial(_logits, twin.embedding.weight.detach())
        return twin
    if model.embedding.weight.dtype != torch.float32:
        return model
    # Every parameter is its own copy: they are shared.
    twin = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, _Product(child.weight, child.bias, dtype))
            elif isinstance(child, Embedding):
                vars(child)["logits"] = _Product(child.weight, None, dtype)  # over the method
    return twin


def _logits(weight: Tensor, hidden: Tensor) -> Tensor:
    """X Wᵀ in fp32, which a GPU adds up in anyway: a bf16 logit of 10 is one of steps of 0.06."""
    return torch.mm(hidden, weight.T, out_dtype=torch.float32)


class _Product(nn.Module):
    """X Wᵀ + b, W converted and laid out beforehand; [N, K] → [N, M]."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        super().__init__()
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.dtype = dtype
        self.packed: Any = self.weight.to(dtype)
        self.packed_bias = None if self.bias is None else self.bias.to(dtype)
        self.has_kernel = _PACKS and (
            dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
        if self.has_kernel:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.packed)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) * self.weight.numel() < _SMALL:
            return F.linear(x, self.weight, self.bias)
        x = x.to(self.dtype)
        if not self.has_kernel:
            return F.linear(x, self.packed, self.packed_bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.packed_bias, "none", [], ""
        )
        return y
