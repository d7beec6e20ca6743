"""Cross-entropy with label smoothing (§5.4), fused with the output layer.

The logits of an update of 25,000 tokens over 37,000 pieces are 3.7 GB in fp32, and their gradient
as much again. Here they exist for some rows at a time: a chunk's gradient is taken from its logits
at once, in the forward pass.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.model.linear import product, weight_gradient

_CHUNK_ROWS = {"cpu": 2048, "cuda": 8192}
"""Most rows of logits held at a time: 0.3 GB and 1.2 GB in fp32 at the paper's vocabulary."""

_COMPILED_ROWS = 32768
"""Within a compiled step; more rows could be 2³¹ logits, and indices would take 64 bits."""

_VOCAB_MULTIPLE = {"cpu": 1, "cuda": 64}
"""The logits' width, in memory, is a multiple of this: what matrix units like."""


class _SmoothedCrossEntropy(torch.autograd.Function):
    """``F.cross_entropy(hidden @ weight.T, targets, label_smoothing=ε, reduction="sum")``.

    d loss / d logits = softmax − (1 − ε) one-hot − ε / V.

    Of the three terms only the softmax is a full matrix: the one-hot touches an element a row, and
    the products with the constant ε / V are the sums of all columns, taken once. So the wide
    matrix of logits is passed over as few times as possible.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(torch.float32, weight.dtype)
        vocab_size = weight.shape[0]
        padding = -vocab_size % _VOCAB_MULTIPLE[device]
        # Compiled, all chunks' logits live at once: then a few large products are better.
        most = _COMPILED_ROWS if torch.compiler.is_compiling() else _CHUNK_ROWS[device]
        chunks = -(-len(targets) // most)
        counted = (targets != IGNORE_INDEX)[:, None]
        # Rows that do not count add nothing to any sum over rows if they are zero.
        rows = hidden.to(exact) * counted
        columns = weight.to(exact).sum(0)
        grad_hidden, grad_weight = [], torch.zeros_like(weight) if needs_grad else None
        nll = hidden.new_zeros((), dtype=exact)
        with torch.autocast(device, enabled=False):
            matrix = F.pad(weight.to(dtype), (0, 0, 0, padding))
            for x, y, keep in zip(
                rows.to(dtype).chunk(chunks),
                targets.clamp(min=0)[:, None].chunk(chunks),
                counted.chunk(chunks),
                strict=True,
            ):
                logits = product(x, matrix)[:, :vocab_size]
                log_p = logits.log_softmax(1, dtype=exact)
                nll -= (log_p.gather(1, y) * keep).sum()
                if grad_weight is None:
                    continue
                grad = _less_at(log_p.exp_(), y, 1 - smoothing)
                grad = F.pad(grad.to(dtype), (0, padding))
                grad_hidden.append(product(grad, matrix.T))
                grad_weight += weight_gradient(grad, x)[:vocab_size]
            # ε times the sum over rows of (the target's logit − the mean logit).
            picked = (rows * weight.to(exact)[targets.clamp(min=0)]).sum()
            loss = nll + smoothing * (picked - (rows @ columns).sum() / vocab_size)
        if grad_weight is not None:
            share = smoothing / vocab_size
            grad_weight -= rows.sum(0) * share
            grad_rows = (torch.cat(grad_hidden).to(exact) - columns * share) * counted
            ctx.save_for_backward(grad_rows.to(hidden.dtype), grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor, _grad_nll: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_loss, grad_weight * grad_loss, None, None, None


def _less_at(values: Tensor, columns: Tensor, amount: float) -> Tensor:
    """``values``, less ``amount`` in one column of each row; may be done in place.

    Args:
        values: [N, V].
        columns: [N, 1] int64.
        amount: What is taken away.
    """
    if torch.compiler.is_compiling():  # which joins this, but no scatter, to what is around it
        every = torch.arange(values.shape[1], device=values.device)
        return torch.where(every == columns, values - amount, values)
    return values.scatter_add_(1, columns, values.new_full(columns.shape, -amount))


def smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum over target tokens of the cross-entropy with smoothed labels, and of the plain one.

    The label distribution is (1 − ε) · one-hot + ε / V, uniform over all pieces, after Szegedy et
    al. 2015, whom the paper cites.

    Args:
        hidden: [N, D] decoder outputs.
        weight: [V, D] output matrix; logits are ``hidden @ weight.T``, computed in the autocast
            dtype where autocast is on, and softmaxed in fp32.
        targets: [N] int64; ``IGNORE_INDEX`` where there is nothing to predict.
        smoothing: ε_ls.

    Returns:
        The loss to minimise, and the negative log-likelihood, which has no gradient; both are
        sums over tokens, scalars in fp32 (float64 for float64 weights).
    """
    loss, nll = _SmoothedCrossEntropy.apply(
        hidden, weight, targets, smoothing, torch.is_grad_enabled()
    )
    return loss, nll
