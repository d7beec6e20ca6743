"""Preparation of a model for decoding: conversion to another dtype and prepacked weights.

Shapes: N rows; K input size; M output size.

A decoding step multiplies each matrix with a few rows, and a CPU may spend half of that time on
reordering the matrix into its internal layout. oneDNN can do so once, in advance.
"""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.kernels.shapes import round_up_to_grid
from transformer_mt.model.embedding import Embedding
from transformer_mt.model.transformer import Transformer

# Private operators of PyTorch; without them weights are not prepacked.
_CAN_PREPACK = torch.backends.mkldnn.is_available() and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)

_SMALL = 2**19
"""Multiplications; for smaller products oneDNN's overhead of 10 µs outweighs the gain."""


def for_inference(model: Transformer, dtype: torch.dtype = torch.float32) -> Transformer:
    """The model for decoding only: a copy, or itself if none is needed.

    Args:
        model: In ``eval`` mode. Do not change its weights afterwards: the copy may share them.
        dtype: Type of all computation on a GPU; on a CPU, of matrix products and attention.
    """
    if model.embedding.weight.device.type != "cpu":
        if model.embedding.weight.dtype == dtype:
            return model
        converted = copy.deepcopy(model).to(dtype)
        weight = converted.embedding.weight.detach()
        if weight.device.type == "cuda":  # replaces the method
            vars(converted.embedding)["logits"] = partial(_logits, weight)
        return converted
    if model.embedding.weight.dtype != torch.float32:
        return model
    # The memo makes the copy share the parameters.
    prepacked = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    for parent in list(prepacked.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, _PrepackedLinear(child.weight, child.bias, dtype))
            elif isinstance(child, Embedding):
                vars(child)["logits"] = _PrepackedLinear(child.weight, None, dtype)
    return prepacked


def _logits(weight: Tensor, hidden: Tensor) -> Tensor:
    """X Wᵀ with fp32 results: bf16 would round a logit of 10 to a multiple of 0.06."""
    return torch.mm(hidden, weight.T, out_dtype=torch.float32)


class _PrepackedLinear(nn.Module):
    """X Wᵀ + b with W converted and prepacked in advance, [N, K] → [N, M]."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        super().__init__()
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.dtype = dtype
        self.packed: Any = self.weight.to(dtype)
        self.packed_bias = None if self.bias is None else self.bias.to(dtype)
        self.has_kernel = _CAN_PREPACK and (
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
        # oneDNN generates code for each number of rows, which takes time and is kept in memory.
        rows = round_up_to_grid(len(x), steps=8)
        padded = F.pad(x, (0, 0, 0, rows - len(x))) if rows > len(x) else x
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            padded, self.packed, self.packed_bias, "none", [], ""
        )
        return y[: len(x)]
