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


class LossModule(nn.Module):
    """Model and loss as one module, so that a data-parallel wrapper sees every use of a weight."""

    def __init__(self, model: Transformer, smoothing: float):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums of smoothed loss and of negative log-likelihood over the batch's target tokens."""
        hidden = self.model(batch)
        weight = self.model.embedding.weight
        return smoothed_cross_entropy(hidden, weight, batch.tgt_out, self.smoothing)


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
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: OptimizerConfig,
        smoothing: float,
        precision: str,
        world: World,
    ):
        self._world = world
        self._precision = precision
        self._model = world.data_parallel(LossModule(model, smoothing))
        self.optimizer = make_adam(model, optimizer)

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
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        device = self._world.device
        loss, nll = torch.zeros((), device=device), torch.zeros((), device=device)
        last = len(micro_batches) - 1
        for i, batch in enumerate(micro_batches):
            with self._world.no_sync(self._model) if i < last else nullcontext():
                with autocast(device, self._precision):
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


def make_adam(model: nn.Module, config: OptimizerConfig) -> torch.optim.Adam:
    """Adam (§5.3); its learning rate is set by every step."""
    return torch.optim.Adam(
        model.parameters(), lr=0.0, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def pick_precision(name: str, device: torch.device) -> str:
    """``fp32`` or ``bf16``; ``auto`` is bf16 where the hardware multiplies it faster."""
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # 2–3 times the fp32 rate on a CPU with AVX-512-BF16 or AMX; slower than fp32 on others.
    # The names are private to torch: where they are gone, fp32 is the safe answer.
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    fast = any(getattr(torch.cpu, name, bool)() for name in tests)
    return "bf16" if fast else "fp32"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """bf16 matrix products where asked for; softmax, norms and the loss stay in fp32."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
