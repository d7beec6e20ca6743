"""Optimizer and learning-rate schedules (§5.3), loss scale, and moving average of the weights.

A checkpoint stores their state in ``optimizer.safetensors``; a learning rate is a function of the
step. To add a schedule, write a function like ``noam`` and register it in ``registries.SCHEDULES``:
its arguments are the number of the update, from 1, the configuration, d_model, and the number of
updates of the run, which is an estimate if its time is limited (``train.max_hours``).
"""

import copy
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import ema_state, parameters
from transformer_mt.config import OptimizerConfig, ScheduleConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import SCHEDULES


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
        groups,
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=0.0,
        fused=True,
    )
    for parameter in weights:  # torch would allocate it in the first step
        adamw.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return adamw


def named_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The live state tensors of an optimizer, as ``<parameter>.<quantity>``.

    Copying the values of a checkpoint into them restores it.
    """
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def noam(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Equation (3): d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5)."""
    return d_model**-0.5 * _warmup_then_decay(step, config.warmup_steps)


def inverse_sqrt(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Same shape as ``noam``, with ``peak_lr`` at the end of the warm-up."""
    assert config.peak_lr is not None  # checked by the config
    return config.peak_lr * config.warmup_steps**0.5 * _warmup_then_decay(step, config.warmup_steps)


def linear(step: int, config: ScheduleConfig, d_model: int, max_steps: float) -> float:
    """Linear warm-up to ``peak_lr``, then linear decay; zero one step after the last."""
    assert config.peak_lr is not None  # checked by the config
    warmup = config.warmup_steps
    rise, fall = step / warmup, (max_steps + 1 - step) / max(1, max_steps + 1 - warmup)
    return config.peak_lr * min(rise, fall)


def ends_with_run(config: ScheduleConfig, d_model: int) -> bool:
    """Whether a schedule falls towards the end of a run: whether it depends on its length."""
    schedule, step = resolve_name(SCHEDULES[config.name]), 2 * config.warmup_steps
    return bool(schedule(step, config, d_model, step) != schedule(step, config, d_model, 2 * step))


def _warmup_then_decay(step: int, warmup_steps: int) -> float:
    factor: float = min(step**-0.5, step * warmup_steps**-1.5)
    return factor


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


class EMA:
    """Exponential moving average: mean ← d · mean + (1 − d) · weights, after each update t.

    d = min(decay, (1 + t) / (10 + t)): a smaller d in the first updates discounts the random
    initial weights. ``torch.optim.swa_utils.AveragedModel`` instead copies the weights in its first
    update, which would change the result.

    Args:
        model: Model in training.
        decay: Weight of the past mean, in [0, 1).
    """

    def __init__(self, model: Transformer, decay: float):
        self._weights, self._decay = list(parameters(model).values()), decay
        self.model = copy.deepcopy(model)
        """Model with the averaged weights."""
        self._means = list(parameters(self.model).values())

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Adds the weights after update ``step`` to the average."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """The live tensors of the average, by their names in a checkpoint."""
        return ema_state(parameters(self.model))
