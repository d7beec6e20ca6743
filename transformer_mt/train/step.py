"""One update: forward, backward, accumulate, all-reduce, Adam (§5)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.batch import Batch
from transformer_mt.config import OptimizerConfig
from transformer_mt.distributed import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.loss import smoothed_cross_entropy
from transformer_mt.train.loss_scale import LossScaler
from transformer_mt.train.optimizer import make_optimizer

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LossModule(nn.Module):
    """Model and loss as one module, so that a data-parallel wrapper sees every use of a weight."""

    def __init__(self, model: Transformer, smoothing: float, precision: str):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.precision = precision
        self._loss = smoothed_cross_entropy

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums of smoothed loss and of negative log-likelihood over the batch's target tokens."""
        with autocast(batch.tgt_out.device, self.precision):
            hidden = self.model(batch)
            weight = self.model.embedding.weight
            return self._loss(hidden, weight, batch.tgt_out, self.smoothing)

    def compile_for(self, world_size: int) -> None:
        """Compiles for buffered batches: one graph, loss and all, if there is a single rank.

        With several, each layer is a graph of its own, and so is the loss: the gradients of a layer
        are then ready, and on their way to the other ranks, while the layers below are still at
        work. One graph would hand over all gradients at its end.
        """
        if world_size == 1:
            self.compile(fullgraph=True, dynamic=False)
            return
        # Dynamo would part each graph again, at the bounds of DDP's buckets, for the same end.
        torch._dynamo.config.optimize_ddp = False
        for layer in (*self.model.encoder, *self.model.decoder):
            layer.compile(fullgraph=True, dynamic=False)
        self._loss = torch.compile(smoothed_cross_entropy, fullgraph=True, dynamic=False)


@dataclass(frozen=True)
class StepResult:
    """Scalars on the device, so that reading them is the only wait."""

    loss: Tensor
    """Sum over this rank's target tokens."""
    nll: Tensor
    """Sum over this rank's target tokens."""
    grad_norm: Tensor
    """Of the whole update, before it was clipped; the same on every rank."""


class TrainStep:
    """Updates a model.

    An update whose gradient is not finite is skipped, on every rank alike: the gradient is the
    same on all, and a loss that is not finite makes one that is not. Nothing waits for the device.

    Args:
        model: The model to train, already on its device.
        optimizer: The optimizer's settings.
        smoothing: ε_ls.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        world: Ranks that share every update.
        clip_norm: Longest gradient, if there is such a limit.
        compiled: Compile the step; every batch must be of the same shape (``data.buffers``).
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: OptimizerConfig,
        smoothing: float,
        precision: str,
        world: World,
        *,
        clip_norm: float | None = None,
        compiled: bool = False,
    ):
        self._world, self._clip_norm = world, clip_norm
        module = LossModule(model, smoothing, precision)
        if compiled:
            module.compile_for(world.size)
        self._model = world.data_parallel(module)
        self._parameters = list(model.parameters())
        self.optimizer = make_optimizer(model, optimizer)
        self._scale = LossScaler(world.device) if precision == "fp16" else None

    def __call__(
        self, micro_batches: Sequence[Batch], num_targets: int, lr: float, seed: int
    ) -> StepResult:
        """One update.

        Args:
            micro_batches: This rank's share of the global batch.
            num_targets: Target tokens of the global batch, over all ranks.
            lr: Learning rate.
            seed: Of the dropout of this update on this rank. A function of the step, so that a
                resumed run draws what an uninterrupted one would have drawn.
        """
        torch.manual_seed(seed)
        self.optimizer.set_lr(lr)
        loss, nll = self.gradient(micro_batches, num_targets)
        return StepResult(loss, nll, self._update())

    def gradient(self, micro_batches: Sequence[Batch], num_targets: int) -> tuple[Tensor, Tensor]:
        """Forward and backward: sums of this rank's losses, and the gradient of all in ``grad``."""
        self.optimizer.zero_grad()
        device = self._world.device
        loss, nll = torch.zeros((), device=device), torch.zeros((), device=device)
        last = len(micro_batches) - 1
        for i, batch in enumerate(micro_batches):
            with self._world.no_sync(self._model) if i < last else nullcontext():
                batch_loss, batch_nll = self._model(batch.to(device))
                # The all-reduce takes the mean over ranks; the update wants the sum.
                scaled = batch_loss * (batch.weight * self._world.size / num_targets)
                if self._scale:
                    scaled = scaled * self._scale.factor
                scaled.backward()
            loss += batch_loss.detach() * batch.weight
            nll += batch_nll * batch.weight
        return loss, nll

    def _update(self) -> Tensor:
        """Moves the weights, unless the gradient is not finite; returns the gradient's norm."""
        grads = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        divisor = self._scale.factor.clone() if self._scale else None
        if divisor is not None:
            norm = norm / divisor
        skip = norm.isfinite().logical_not()
        if self._clip_norm is not None:
            excess = (norm / self._clip_norm).clamp(min=1)
            divisor = excess if divisor is None else divisor * excess
        self.optimizer.step(divisor, skip)
        if self._scale:
            self._scale.update(skip)
        return norm

    def state(self) -> dict[str, Tensor]:
        """What the next update depends on, beside the weights: the tensors in use, by name."""
        return self.optimizer.state() | (self._scale.state() if self._scale else {})


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """16-bit matrix products where asked for; softmax, norms and the loss stay in fp32."""
    if precision in _DTYPES:
        return torch.autocast(device.type, dtype=_DTYPES[precision])
    return nullcontext()
