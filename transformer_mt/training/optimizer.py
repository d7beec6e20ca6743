"""Optimizer and learning-rate schedules (§5.3), and loss scale.

A checkpoint stores their state in ``optimizer.safetensors``; a learning rate is a function of the
step. To add a schedule, write a function like ``noam`` and register it in ``registries.SCHEDULES``:
its arguments are the number of the update, from 1, the configuration, d_model, and the number of
updates of the run, which is an estimate if its time is limited (``train.max_hours``).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config import OptimizerConfig, ScheduleConfig

Schedule = Callable[[int, ScheduleConfig, int, float], float]
"""Learning rate as a function of the update, the configuration, d_model, and updates of the run."""


def adam(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam (§5.3) for all weights, with decoupled weight decay for matrices.

    Returns:
        A fused optimizer, which supports ``grad_scale`` and ``found_inf``. Its state is allocated.
    """
    weights = list(model.parameters())
    matrices = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors},
    ]
    adamw = torch.optim.AdamW(  # without weight decay it equals Adam bit for bit
        groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
    )
    for parameter in weights:  # torch would allocate it in the first step
        adamw.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return adamw


def noam(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Equation (3): d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5)."""
    lrate: float = d_model**-0.5 * min(step**-0.5, step * config.warmup_steps**-1.5)
    return lrate


def inverse_sqrt(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Same shape as ``noam``, with ``peak_lr`` at the end of the warm-up."""
    assert config.peak_lr is not None  # checked by the config
    shape: float = min(step**-0.5, step * config.warmup_steps**-1.5)
    return config.peak_lr * config.warmup_steps**0.5 * shape


def linear(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Linear warm-up to ``peak_lr``, then linear decay; zero one step after the last."""
    assert config.peak_lr is not None  # checked by the config
    warmup = config.warmup_steps
    rise, fall = step / warmup, (max_steps + 1 - step) / max(1, max_steps + 1 - warmup)
    return config.peak_lr * min(rise, fall)


class LossScaler:
    """Loss scale for fp16, halved on overflow, doubled after 2,000 updates without overflow.

    As in Micikevicius et al. 2018 (§3.2), by the operator of ``torch.amp.GradScaler``, which itself
    waits for the device to save its state, as Python numbers. Here it is tensors that a checkpoint
    copies.
    """

    def __init__(self, device: torch.device):
        self.factor = torch.full((), 2.0**16, device=device)
        self._good = torch.zeros((), dtype=torch.int32, device=device)

    def update(self, overflow: Tensor) -> None:
        """Adapts the scale.

        Args:
            overflow: Scalar bool on the device, whether the latest gradient was not finite.
        """
        torch._amp_update_scale_(self.factor, self._good, overflow.float(), 2.0, 0.5, 2000)

    def state(self) -> dict[str, Tensor]:
        """The live tensors, by their names in a checkpoint."""
        return {"loss_scale.factor": self.factor, "loss_scale.good": self._good}
