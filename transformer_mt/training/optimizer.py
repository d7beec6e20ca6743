"""What an update changes besides the weights: Adam's state, the loss scale, the moving average.

A checkpoint stores all of it in ``optimizer.safetensors``. To add an optimizer, write a function
that builds an ``Optimizer``, and register it in ``registries.OPTIMIZERS``.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import ema_state, parameters
from transformer_mt.config import OptimizerConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import OPTIMIZERS, load

_INITIAL_SCALE, _MAX_SCALE = 2.0**16, 2.0**24
_GROWTH_INTERVAL = 2000
"""Updates without overflow after which the loss scale is doubled, as in ``GradScaler``."""


class Optimizer:
    """A fused optimizer of torch.

    Args:
        weights: Its parameters, by name.
        fused: Supports ``grad_scale`` and ``found_inf``, and has its state allocated.
    """

    def __init__(self, weights: dict[str, nn.Parameter], fused: torch.optim.Optimizer):
        self._weights, self._fused = weights, fused

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate, which is 0 initially."""
        for group in self._fused.param_groups:
            group["lr"] = lr

    def zero_grad(self) -> None:
        """Frees all gradients."""
        for parameter in self._weights.values():
            parameter.grad = None

    def step(self, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """Updates each weight that has a gradient.

        Args:
            grad_scale: Scalar that gradients are divided by first.
            found_inf: Scalar bool on the device; if True, neither weights nor state change.
        """
        # The interface of GradScaler to fused optimizers, which take fp32 scalars only.
        scalars = [None if x is None else x.float() for x in (grad_scale, found_inf)]
        self._fused.grad_scale, self._fused.found_inf = scalars  # type: ignore[attr-defined]
        self._fused.step()

    def state(self) -> dict[str, Tensor]:
        """The live state tensors, as ``<parameter>.<quantity>``, complete before the first step.

        Copying the values of a checkpoint into them restores it.
        """
        return {
            f"{name}.{key}": value
            for name, parameter in self._weights.items()
            for key, value in self._fused.state[parameter].items()
        }


def adam(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam (§5.3) for all weights, with decoupled weight decay for matrices."""
    weights = dict(model.named_parameters())
    matrices = [weight for weight in weights.values() if weight.ndim > 1]
    vectors = [weight for weight in weights.values() if weight.ndim < 2]
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
    for parameter in weights.values():  # torch would allocate it in the first step
        adamw.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return Optimizer(weights, adamw)


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Builds the optimizer that the config names, for a model already on its device."""
    optimizer: Optimizer = load(OPTIMIZERS, config.name)(model, config)
    return optimizer


class LossScaler:
    """Loss scale for fp16, halved on overflow, doubled after 2,000 updates without overflow.

    As in Micikevicius et al. 2018 (§3.2). ``torch.amp.GradScaler`` saves its state as Python
    numbers, for which the host waits for the device; here it is tensors that a checkpoint copies.
    """

    def __init__(self, device: torch.device):
        self.factor = torch.full((), _INITIAL_SCALE, device=device)
        self._good = torch.zeros((), device=device)

    def update(self, overflow: Tensor) -> None:
        """Adapts the scale.

        Args:
            overflow: Scalar bool on the device, whether the latest gradient was not finite.
        """
        self._good.add_(1).mul_(~overflow)
        grow = self._good >= _GROWTH_INTERVAL
        self._good.mul_(~grow)
        self.factor.mul_(torch.where(overflow, 0.5, 1.0)).mul_(torch.where(grow, 2.0, 1.0))
        self.factor.clamp_(1.0, _MAX_SCALE)

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
