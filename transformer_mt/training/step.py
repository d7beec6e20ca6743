"""One training step: forward, backward, accumulation, all-reduce, optimizer update (§5).

Its metrics are added up on the device.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.batch import Batch, CuSeqlens
from transformer_mt.checkpoint import Tensors
from transformer_mt.config import OptimizerConfig
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.run_layout import CHECKPOINT_OPTIMIZER, WEIGHTS
from transformer_mt.training.loss import smoothed_cross_entropy
from transformer_mt.training.optimizer import LossScaler, adam

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Type of matrix products by ``train.precision``."""

_SUMS = ("loss", "nll", "targets", "skipped")


class LossModule(nn.Module):
    """Model and loss as one module, so that DDP sees each use of a weight."""

    def __init__(self, model: Transformer, label_smoothing: float, precision: str):
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.precision = precision
        self._loss = smoothed_cross_entropy

    def forward(self, batch: Batch, loss_scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Label-smoothed loss and negative log-likelihood, summed over target tokens.

        ``loss_scale`` is the factor by which the caller multiplies the loss (fp16 only).
        """
        device, mixed = batch.tgt_out.device.type, self.precision != "fp32"
        # Softmax, norms and the loss stay in fp32.
        with torch.autocast(device, DTYPES[self.precision], enabled=mixed):
            return self._loss(
                self.model(batch),
                self.model.output_weight,
                batch.tgt_out,
                self.label_smoothing,
                self.model.output_bias,
                loss_scale,
            )

    def compile_for(self, world_size: int) -> None:
        """Compiles for batches of a fixed size: on a single rank, model and loss in one graph.

        On several ranks each layer and the loss are separate graphs, so that DDP reduces the
        gradients of a layer while the layers below still compute theirs; a single graph would
        deliver all gradients at its end.
        """
        # PyTorch compiles a function at most 8 times, and the jobs of a sweep share a process.
        torch._dynamo.reset()
        if world_size == 1:
            self.compile(fullgraph=True, dynamic=False)
            return
        # Dynamo would also split each graph at DDP's buckets, for the same purpose.
        torch._dynamo.config.optimize_ddp = False
        for layer in (*self.model.encoder, *self.model.decoder):
            layer.compile(fullgraph=True, dynamic=False)
        self._loss = torch.compile(smoothed_cross_entropy, fullgraph=True, dynamic=False)


@dataclass(frozen=True)
class StepResult:
    """Metrics of one update, scalars on the device: only reading them waits for it."""

    loss: Tensor
    """Label-smoothed loss, summed over the target tokens of this rank."""
    nll: Tensor
    """Negative log-likelihood, summed over the target tokens of this rank."""
    grad_norm: Tensor
    """Norm of the gradient before clipping, the same on all ranks."""


class MetricSums:
    """Sums over the updates of a logging interval; adding to them never waits for the device.

    Args:
        world: Ranks that share the updates.
        totals: What ``read`` returned, to continue from it.
    """

    def __init__(self, world: World, totals: Mapping[str, float]):
        self._world, self._is_main = world, world.is_main
        sums = [totals.get(name, 0.0) for name in _SUMS]
        self._sums = torch.tensor(sums, dtype=torch.float64, device=world.device) * world.is_main
        self.streak = torch.zeros((), dtype=torch.int64, device=world.device)
        """Number of updates skipped since the latest one that was not, on the device."""
        self.grad_norm = torch.zeros((), device=world.device)
        """Norm of the gradient of the latest update, on the device."""

    def add(self, result: StepResult, num_targets: int) -> None:
        """Adds one update; a skipped one counts in ``skipped`` only."""
        self.grad_norm, finite = result.grad_norm, result.grad_norm.isfinite()
        # Values that are equal on all ranks are added on the main rank only.
        counts = torch.stack((finite * num_targets, ~finite)) * self._is_main
        losses = torch.stack((result.loss, result.nll)).double()
        self._sums += torch.cat((torch.where(finite, losses, 0.0), counts))
        self.streak = torch.where(finite, 0, self.streak + 1)

    def read(self) -> dict[str, float]:
        """The sums over all ranks, unchanged; waits for the device and the other ranks."""
        self._sums = self._world.sum(self._sums)
        values: list[float] = self._sums.tolist()
        # The main rank keeps the total, as after a resume: later additions round in the same way.
        self._sums *= self._is_main
        return dict(zip(_SUMS, values, strict=True))

    def clear(self) -> None:
        """Sets the sums to zero; the count of consecutive skipped updates continues."""
        self._sums.zero_()


class TrainStep:
    """One update of a model's weights.

    An update with a non-finite gradient, as from a non-finite loss, is skipped on all ranks, which
    hold the same gradient. The host never waits for the device.

    Args:
        model: Model to train, already on its device.
        optimizer: Settings of the optimizer.
        label_smoothing: Label smoothing ε_ls.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        world: Ranks that share each update.
        clip_norm: Maximum gradient norm, if any.
        compiled: Compile the step; all batches must have the same number of tokens.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: OptimizerConfig,
        label_smoothing: float,
        precision: str,
        world: World,
        *,
        clip_norm: float | None = None,
        compiled: bool = False,
    ):
        self._world, self._clip_norm, self._compiled = world, clip_norm, compiled
        module = LossModule(model, label_smoothing, precision)
        if compiled:
            module.compile_for(world.size)
        self._model, self._parallel = model, world.data_parallel(module)
        self.optimizer = adam(model, optimizer)
        self._scaler = LossScaler(world.device) if precision == "fp16" else None

    def __call__(
        self, micro_batches: Sequence[Batch], num_targets: int, lr: float, seed: int
    ) -> StepResult:
        """Performs one update.

        Args:
            micro_batches: This rank's part of the global batch.
            num_targets: Number of target tokens of the global batch, over all ranks.
            lr: Learning rate.
            seed: Dropout seed of this update on this rank; a function of the step, so that a
                resumed run draws the same masks.
        """
        # Not ``torch.manual_seed``, which also seeds devices that are not used.
        torch.default_generator.manual_seed(seed)
        if self._world.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        loss, nll = self.gradient(micro_batches, num_targets)
        grads = [p.grad for p in self._model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        divisor = self._scaler.factor.clone() if self._scaler else None  # of the gradient
        if divisor is not None:
            norm = norm / divisor
        found_inf = norm.isfinite().logical_not()
        if self._clip_norm is not None:
            excess = (norm / self._clip_norm).clamp(min=1)
            divisor = excess if divisor is None else divisor * excess
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        # The interface of GradScaler to fused optimizers, which take fp32 scalars only.
        fused: Any = self.optimizer
        assert fused._step_supports_amp_scaling, "not a fused optimizer"
        fused.grad_scale = None if divisor is None else divisor.float()
        fused.found_inf = found_inf.float()
        fused.step()
        if self._scaler:
            self._scaler.update(found_inf)
        return StepResult(loss, nll, norm)

    def gradient(self, micro_batches: Sequence[Batch], num_targets: int) -> tuple[Tensor, Tensor]:
        """Forward and backward: leaves the gradient over all ranks in ``grad``.

        Returns:
            Loss and negative log-likelihood, summed over the target tokens of this rank.
        """
        self.optimizer.zero_grad()
        device = self._world.device
        loss, nll = torch.zeros((), device=device), torch.zeros((), device=device)
        last = len(micro_batches) - 1
        no_sync = getattr(self._parallel, "no_sync", nullcontext)  # only DDP has it
        # DDP averages over ranks, but the loss is a sum over them.
        weight = self._world.size / num_targets
        loss_scale = weight * self._scaler.factor if self._scaler else None
        for i, batch in enumerate(micro_batches):
            with no_sync() if i < last else nullcontext():
                if device.type != "cpu":
                    batch = batch.to(device)
                if self._compiled:  # the one size that differs between batches
                    for side in (batch.src, batch.tgt_in):
                        assert isinstance(side.boundaries, CuSeqlens)
                        torch._dynamo.mark_dynamic(side.boundaries.cu_seqlens, 0)
                batch_loss, batch_nll = self._parallel(batch, loss_scale)
                (batch_loss * (weight if loss_scale is None else loss_scale)).backward()
            loss += batch_loss.detach()
            nll += batch_nll
        return loss, nll

    def tensors(self) -> Tensors:
        """All tensors that an update changes, by their files and names in a checkpoint.

        Copying the values of a checkpoint into them restores the weights, the state of the
        optimizer (``<parameter>.<quantity>``), and the loss scale.
        """
        state = {} if self._scaler is None else self._scaler.state()
        for name, parameter in self._model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                state[f"{name}.{key}"] = value
        return {WEIGHTS: self._model.state_dict(), CHECKPOINT_OPTIMIZER: state}
