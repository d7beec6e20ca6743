"""Conversion between packed tokens and padded sequences, for attention by buckets.

Shapes: N packed rows; B sequences and S padded length of a bucket; P padded rows of all buckets;
H heads; K size of a head; F features.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_mt.batch import Buckets


def pad(x: Tensor, layout: Buckets) -> list[Tensor]:
    """Packed rows [N, F] → [B, S, F] of each bucket."""
    if layout.pad_indices is not None:
        x = GatherRows.apply(x, layout.pad_indices, layout.unpad_indices)
    buckets = layout.buckets
    parts = x.split([bucket.num_sequences * bucket.max_length for bucket in buckets])
    return [
        part.view(bucket.num_sequences, bucket.max_length, -1)
        for part, bucket in zip(parts, buckets, strict=True)
    ]


def unpad(parts: list[Tensor], layout: Buckets) -> Tensor:
    """The inverse of ``pad``: [B, S, F] of each bucket → packed rows [N, F]."""
    rows = [part.flatten(0, 1) for part in parts]
    x = rows[0] if len(rows) == 1 else torch.cat(rows)
    return x if layout.unpad_indices is None else ScatterRows.apply(x, layout.unpad_indices)


class GatherRows(torch.autograd.Function):
    """Packed rows → padded rows, a gather in both directions: padding receives no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gather: Tensor, scatter: Tensor) -> Tensor:
        """[N, F] → [P, F]; ``scatter`` [N] is where the rows go."""
        ctx.save_for_backward(scatter)
        return x.index_select(0, gather)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """[P, F] → [N, F]."""
        (scatter,) = ctx.saved_tensors
        return grad.index_select(0, scatter), None, None


class ScatterRows(torch.autograd.Function):
    """Padded rows → packed rows; the gradient of padding is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scatter: Tensor) -> Tensor:
        """[P, F] → [N, F]."""
        ctx.save_for_backward(scatter)
        ctx.num_rows = len(x)
        return x.index_select(0, scatter)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """[N, F] → [P, F]."""
        (scatter,) = ctx.saved_tensors
        return grad.new_zeros(ctx.num_rows, grad.shape[1]).index_copy_(0, scatter, grad), None


@dataclass(frozen=True)
class HeadRows:
    """Indices between rows of packed heads [N, H, K] and of padded ones, [B, H, S, K] by bucket."""

    gather: Tensor
    """[H · P] int64: index of the packed row in each padded row."""
    scatter: Tensor
    """[N · H] int64: index of each packed row in the padded rows."""

    @classmethod
    def of(cls, layout: Buckets, num_heads: int) -> "HeadRows":
        """The indices for a layout, computed once because all layers share them."""
        rows = layout.head_rows.get(num_heads) or cls._of(layout, num_heads)
        assert isinstance(rows, HeadRows)
        layout.head_rows[num_heads] = rows
        return rows

    @classmethod
    def _of(cls, layout: Buckets, num_heads: int) -> "HeadRows":
        total = layout.num_padded_rows
        packed = torch.arange(total) if layout.pad_indices is None else layout.pad_indices
        heads = torch.arange(num_heads)[:, None]
        gather, scatter, start = [], [], 0
        for bucket in layout.buckets:
            shape = bucket.num_sequences, 1, bucket.max_length
            end = start + shape[0] * shape[2]
            gather.append((packed[start:end].view(shape) * num_heads + heads).flatten())
            padded = torch.arange(start * num_heads, end * num_heads)
            by_token = padded.view(shape[0], num_heads, shape[2]).transpose(1, 2)
            scatter.append(by_token.reshape(-1, num_heads))
            start = end
        indices = torch.cat(scatter)
        if layout.unpad_indices is not None:
            indices = indices.index_select(0, layout.unpad_indices)
        return cls(torch.cat(gather), indices.flatten())
