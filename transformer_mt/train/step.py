"""One update: forward, backward, accumulate, all-reduce, Adam (§5)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.config import OptimizerConfig
from transformer_mt.data.batching import Batch
from transformer_mt.distributed import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.loss import smoothed_cross_entropy
from transformer_mt.train.optimizer import make_optimizer


class LossModule(nn.Module):
    """Model and loss as one module, so that a data-parallel wrapper sees every use of a weight."""

    def __init__(self, model: Transformer, smoothing: float, precision: str):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.precision = precision

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums of smoothed loss and of negative log-likelihood over the batch's target tokens."""
        with autocast(batch.tgt_out.device, self.precision):
            hidden = self.model(batch)
            weight = self.model.embedding.weight
            return smoothed_cross_entropy(hidden, weight, batch.tgt_out, self.smoothing)

    def compile_for(self, world_size: int) -> None:
        """Compiles for buffered batches: one graph, loss and all, if there is a single rank.

        With several, each layer is a graph of its own: the gradients of a layer are then ready,
        and on their way to the other ranks, while the layers below are still at work. One graph
        would hand over all gradients at its end.
        """
        parts = [self] if world_size == 1 else [*self.model.encoder, *self.model.decoder]
        for part in parts:
            part.compile(fullgraph=True, dynamic=False)


@dataclass(frozen=True)
class StepResult:
    """Sums over this rank's target tokens; on the device, so that reading them is the only wait."""

    loss: Tensor
    nll: Tensor


class TrainStep:
    """Updates a model.

    Args:
        model: The model to train, already on its device.
        optimizer: Adam's parameters.
        smoothing: ε_ls.
        precision: ``fp32`` or ``bf16``.
        world: Ranks that share every update.
        compiled: Compile the step; every batch must be of the same shape (``data.buffers``).
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: OptimizerConfig,
        smoothing: float,
        precision: str,
        world: World,
        compiled: bool = False,
    ):
        self._world = world
        module = LossModule(model, smoothing, precision)
        if compiled:
            module.compile_for(world.size)
        self._model = world.data_parallel(module)
        self.optimizer = make_optimizer(model, optimizer)

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
        self.optimizer.zero_grad()
        device = self._world.device
        loss, nll = torch.zeros((), device=device), torch.zeros((), device=device)
        last = len(micro_batches) - 1
        for i, batch in enumerate(micro_batches):
            with self._world.no_sync(self._model) if i < last else nullcontext():
                batch_loss, batch_nll = self._model(batch.to(device))
                # The all-reduce takes the mean over ranks; the update wants the sum.
                scale = batch.weight * self._world.size / num_targets
                (batch_loss * scale).backward()
            loss += batch_loss.detach() * batch.weight
            nll += batch_nll * batch.weight
        self.optimizer.step()
        return StepResult(loss, nll)

    def grad_norm(self) -> Tensor:
        """Norm of the gradient of the latest update, a scalar on the device."""
        grads = [p.grad for p in self._model.parameters() if p.grad is not None]
        return torch.nn.utils.get_total_norm(grads)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """bf16 matrix products where asked for; softmax, norms and the loss stay in fp32."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
