"""Cross-entropy with label smoothing (§5.4), fused with the output layer.

The logits of an update of 25,000 tokens over 37,000 pieces are 3.7 GB in fp32, and their gradient
as much again. Here they exist for some rows at a time: a chunk's gradient is taken from its logits
at once, in the forward pass.

R-Drop (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks") adds how much two
passes over the same pairs, each with a dropout of its own, disagree.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.data.batching import IGNORED
from transformer_mt.model.linear import product

_CHUNK_ROWS = {"cpu": 2048, "cuda": 8192}
"""Most rows of logits held at a time: 0.3 GB and 1.2 GB in fp32 at the paper's vocabulary."""

_VOCAB_MULTIPLE = {"cpu": 1, "cuda": 64}
"""The logits' width, in memory, is a multiple of this: what matrix units like."""


class _SmoothedCrossEntropy(torch.autograd.Function):
    """d loss / d logits = softmax − (1 − ε) one-hot − ε / V.

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
        r_drop: float,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(torch.float32, weight.dtype)
        vocab_size = weight.shape[0]
        padding = -vocab_size % _VOCAB_MULTIPLE[device]
        passes = len(hidden) // len(targets)
        chunks = -(-len(hidden) // _CHUNK_ROWS[device])
        targets = targets.repeat(passes)
        counted = (targets != IGNORED)[:, None]
        # Rows that do not count add nothing to any sum over rows if they are zero.
        rows = hidden.to(exact) * counted
        columns = weight.to(exact).sum(0)
        grad_hidden, grad_weight = [], torch.zeros_like(weight) if needs_grad else None
        nll, agreement = hidden.new_zeros((2,), dtype=exact)
        with torch.autocast(device, enabled=False):
            matrix = F.pad(weight.to(dtype), (0, 0, 0, padding))
            parts = (rows.to(dtype), targets.clamp(min=0)[:, None], counted)
            # A chunk has the same tokens of each pass.
            chunked = (part.view(passes, -1, part.shape[1]).chunk(chunks, 1) for part in parts)
            for x, y, keep in zip(*chunked, strict=True):
                x, y, keep = x.flatten(0, 1), y.flatten(0, 1), keep.flatten(0, 1)
                logits = product(x, matrix)[:, :vocab_size]
                log_p = logits.log_softmax(1, dtype=exact)
                nll -= (log_p.gather(1, y) * keep).sum()
                if grad_weight is None:
                    continue
                apart = None
                if r_drop:
                    value, apart = _disagreement(log_p, keep)
                    agreement += value
                grad = _less_at(log_p.exp_(), y, 1 - smoothing)
                if apart is not None:
                    grad += r_drop * apart
                grad = F.pad(grad.to(dtype), (0, padding))
                grad_hidden.append(product(grad, matrix.T).view(passes, -1, x.shape[1]))
                grad_weight += (grad.T @ x)[:vocab_size]
            # What it takes to go from the mean of all log-probabilities to the target's.
            picked = (rows * weight.to(exact)[targets.clamp(min=0)]).sum()
            loss = nll + smoothing * (picked - (rows @ columns).sum() / vocab_size)
            loss = (loss + r_drop * agreement) / passes
        if grad_weight is not None:
            share = smoothing / vocab_size
            grad_weight -= rows.sum(0) * share
            grad_rows = torch.cat(grad_hidden, 1).flatten(0, 1).to(exact)
            grad_rows = (grad_rows - columns * share) * counted
            ctx.save_for_backward(grad_rows.to(hidden.dtype) / passes, grad_weight / passes)
        nll = nll / passes
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor, _grad_nll: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_loss, grad_weight * grad_loss, None, None, None, None


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


def _disagreement(log_p: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Two passes' distance, ½ KL(P ‖ Q) + ½ KL(Q ‖ P) = ½ Σ (p − q)(log p − log q), and its slope.

    Args:
        log_p: [2·N, V]: log P of N tokens, then log Q of the same.
        counted: [2·N, 1]: whether a token counts.

    Returns:
        The sum over counted tokens, and its gradient by the logits of both, [2·N, V].
    """
    p, q = log_p.exp().chunk(2)
    one, other = log_p.chunk(2)
    difference, ratio = p - q, one - other
    by_token = difference * ratio
    value = (by_token * counted[: len(p)]).sum() / 2
    grads = (
        difference + p * (ratio - (p * ratio).sum(1, keepdim=True)),
        -difference - q * (ratio - (q * ratio).sum(1, keepdim=True)),
    )
    return value, torch.cat(grads) / 2


def smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sum over target tokens of the cross-entropy with smoothed labels, and of the plain one.

    The label distribution is (1 − ε) · one-hot + ε / V, uniform over all pieces, after Szegedy et
    al. 2015, whom the paper cites.

    Args:
        hidden: [N, D] decoder outputs; [2·N, D], one pass after the other, if ``r_drop`` is set.
        weight: [V, D] output matrix; logits are ``hidden @ weight.T``, computed in the autocast
            dtype where autocast is on, and softmaxed in fp32.
        targets: [N] int64; ``IGNORED`` where there is nothing to predict.
        smoothing: ε_ls.
        r_drop: α of R-Drop. The loss is half of that paper's, L_NLL + α·½ [KL(P‖Q) + KL(Q‖P)],
            whose first part is the sum of both passes: with α = 0 it is the mean of two losses.

    Returns:
        The loss to minimise, and the negative log-likelihood (of two passes the mean), which has
        no gradient; both are sums over tokens, scalars in fp32 (float64 for float64 weights).
    """
    loss, nll = _SmoothedCrossEntropy.apply(
        hidden, weight, targets, smoothing, r_drop, torch.is_grad_enabled()
    )
    return loss, nll
