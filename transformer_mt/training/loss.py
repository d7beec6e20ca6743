"""Label-smoothed cross-entropy (§5.4), fused with the output layer.

Shapes: N target tokens, D model, V vocabulary.

The logits of 25,000 tokens over 37,000 pieces are 3.7 GB in fp32, and so is their gradient. Here
they exist for a chunk of rows at a time: the forward pass also computes the gradient of each chunk.
A compiled step has a single chunk, in 16 bits.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.kernels.products import weight_gradient

_CHUNK_ROWS = {"cpu": 1024, "cuda": 8192}
"""Maximum rows of a chunk: 0.15 GB and 1.2 GB of fp32 logits with the vocabulary of the paper."""

_SOFTMAX_SIZE = 2**19
"""Maximum logits per thread of a softmax on a CPU, 2 MB in fp32, which stay in the cache."""

_COMPILED_ROWS = 32768
"""Maximum rows in a compiled step: more would need 64-bit indices with 65,536 pieces."""

_VOCAB_MULTIPLE = {"cpu": 1, "cuda": 64}
"""Logits are padded to a multiple of this width, for which matrix units are faster."""


class _SmoothedCrossEntropy(torch.autograd.Function):
    """``F.cross_entropy(hidden @ weight.T + bias, targets, label_smoothing=ε, reduction="sum")``.

    d loss / d logits = softmax − (1 − ε) one-hot − ε / V.

    Only the softmax is a full [N, V] matrix: the one-hot term touches one element per row, and the
    products with the constant ε / V need only the sum of the weight's rows, computed once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        loss_scale: Tensor | None,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        device, dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(torch.float32, weight.dtype)
        vocab_size = weight.shape[0]
        padding = -vocab_size % _VOCAB_MULTIPLE[device]
        # A compiled graph holds the logits of all chunks at once, so few large ones are better.
        max_rows = _COMPILED_ROWS if torch.compiler.is_compiling() else _CHUNK_ROWS[device]
        chunks = -(-len(targets) // max_rows)
        counted = (targets != IGNORE_INDEX)[:, None]
        # Ignored rows are zero, so that they add nothing to any sum over rows.
        rows = hidden.to(exact) * counted
        weight_sum = weight.to(exact).sum(0)
        grad_hidden, grad_weight = [], torch.zeros_like(weight) if needs_grad else None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        nll = hidden.new_zeros((), dtype=exact)
        with torch.autocast(device, enabled=False):
            padded_weight = weight.to(dtype)
            padded_weight = F.pad(padded_weight, (0, 0, 0, padding)) if padding else padded_weight
            padded_bias = None if bias is None else F.pad(bias.to(dtype), (0, padding))
            for x, y, keep in zip(
                rows.to(dtype).chunk(chunks),
                targets.clamp(min=0)[:, None].chunk(chunks),
                counted.chunk(chunks),
                strict=True,
            ):
                logits = F.linear(x, padded_weight, padded_bias)[:, :vocab_size]
                grad, row_nll = _logits_gradient(logits, y, 1 - label_smoothing, exact, loss_scale)
                nll += (row_nll * keep).sum()
                if grad_weight is None:
                    continue
                grad = F.pad(grad, (0, padding)) if padding else grad
                grad_hidden.append(grad @ padded_weight)
                grad_weight += weight_gradient(grad, x)[:vocab_size]
                if grad_bias is not None:
                    grad_bias += (keep.to(dtype).T @ grad)[0, :vocab_size]
            # Plus ε times the sum over rows of (target logit − mean logit).
            target_logits = (rows * weight.to(exact)[targets.clamp(min=0)]).sum()
            all_logits = (rows @ weight_sum).sum()
            if bias is not None:
                target_logits += (bias.to(exact)[targets.clamp(min=0)] * counted[:, 0]).sum()
                all_logits += bias.to(exact).sum() * counted.sum()
            loss = nll + label_smoothing * (target_logits - all_logits / vocab_size)
        if grad_weight is not None:
            uniform: float | Tensor = label_smoothing / vocab_size
            if loss_scale is not None:
                uniform = uniform * loss_scale
            grad_weight -= rows.sum(0) * uniform
            if grad_bias is not None:
                grad_bias -= counted.sum() * uniform
            grad_rows = (torch.cat(grad_hidden).to(exact) - weight_sum * uniform) * counted
            ctx.save_for_backward(grad_rows.to(hidden.dtype), grad_weight, grad_bias, loss_scale)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, grad_bias, loss_scale = ctx.saved_tensors
        if loss_scale is not None:
            grad_loss = grad_loss / loss_scale
        if grad_bias is not None:
            grad_bias = grad_bias * grad_loss
        return grad_hidden * grad_loss, grad_weight * grad_loss, grad_bias, None, None, None, None


def _logits_gradient(
    logits: Tensor, target_ids: Tensor, amount: float, dtype: torch.dtype, scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Softmax minus ``amount`` at the target of each row, and −log of the softmax there.

    [N, V] and [N, 1] → [N, V] in the type of the logits, possibly in their place, multiplied by
    ``scale``, and [N, 1] in ``dtype``, the type of the softmax.
    """
    if torch.compiler.is_compiling() or logits.device.type != "cpu":
        log_p = logits.log_softmax(1, dtype=dtype)
        nll = -log_p.gather(1, target_ids)
        grad = log_p.exp_()
        if torch.compiler.is_compiling():  # it fuses this with its surroundings, but no scatter
            every = torch.arange(grad.shape[1], device=grad.device)
            grad = torch.where(every == target_ids, grad - amount, grad)
        else:
            grad.scatter_add_(1, target_ids, grad.new_full(target_ids.shape, -amount))
        return (grad if scale is None else grad * scale).to(logits.dtype), nll
    rows, losses = max(1, _SOFTMAX_SIZE * torch.get_num_threads() // logits.shape[1]), []
    for part, y in zip(logits.split(rows), target_ids.split(rows), strict=True):
        p = part.to(dtype)
        # A probability may underflow, but never the largest one of a row.
        below_maximum = p.amax(1, keepdim=True) - p.gather(1, y)
        torch.softmax(p, 1, out=p)
        losses.append(below_maximum - p.amax(1, keepdim=True).log())
        p.scatter_add_(1, y, p.new_full(y.shape, -amount))
        if scale is not None:
            p *= scale
        if p.dtype != part.dtype:
            part.copy_(p)
    return logits, torch.cat(losses)


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    label_smoothing: float,
    bias: Tensor | None = None,
    loss_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy with smoothed labels and with plain ones, summed over target tokens.

    The smoothed label distribution is (1 − ε) · one-hot + ε / V, uniform over all pieces, as in
    Szegedy et al. 2015, which the paper cites.

    Args:
        hidden: [N, D] decoder output.
        weight: [V, D] output matrix; logits are ``hidden @ weight.T + bias``, in the autocast dtype
            if autocast is on, and the softmax is in fp32.
        targets: [N] int64 token ids; ``IGNORE_INDEX`` where there is nothing to predict.
        label_smoothing: ε_ls.
        bias: [V] output bias, if any.
        loss_scale: Scalar, the gradient of the loss that ``backward`` will pass on, if the loss is
            scaled for fp16. The gradient of the logits is computed here, before that, and would
            underflow if it were rounded first and scaled afterwards.

    Returns:
        The loss to minimise, and the negative log-likelihood, which has no gradient: scalars, in
        fp32 (float64 for float64 weights).
    """
    loss, nll = _SmoothedCrossEntropy.apply(
        hidden, weight, bias, targets, label_smoothing, loss_scale, torch.is_grad_enabled()
    )
    return loss, nll
