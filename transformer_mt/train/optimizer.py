"""Optimizers: Adam (§5.3), and Muon for the matrices of the layers with Adam for the rest.

To add one, write a function that builds it, register it in ``OPTIMIZERS`` and add its name to
``OptimizerConfig``.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from transformer_mt.config import OptimizerConfig
from transformer_mt.model.attention import CrossKVProjection, SelfAttention


class Optimizer(Protocol):
    """Optimizer of one model; works on the memory of the weights, which stay on their device."""

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate, which is 0 initially."""
        ...

    def zero_grad(self) -> None:
        """Frees all gradients."""
        ...

    def step(self, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """Updates each weight that has a gradient.

        Args:
            grad_scale: Scalar that gradients are divided by first.
            found_inf: Scalar bool; if True, neither the weights nor the state change.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """The live state tensors, as ``<parameter>.<quantity>``, complete before the first step.

        Copying the values of a checkpoint into them restores it.
        """
        ...


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Builds the optimizer that the config names, for a model already on its device."""
    return OPTIMIZERS[config.name](model, config)


def adam(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Adam for all weights, with decoupled weight decay for matrices."""
    return Adam(dict(model.named_parameters()), config)


def muon(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Muon for the matrices of the layers, Adam for embeddings, biases and norms."""
    weights = dict(model.named_parameters())
    sizes = hidden_matrices(model)
    stacked = {name: StackedWeight(weights.pop(name), rows) for name, rows in sizes.items()}
    return Muon(stacked, Adam(weights, config), config)


OPTIMIZERS: dict[str, Callable[[nn.Module, OptimizerConfig], Optimizer]] = {
    "adam": adam,
    "muon": muon,
}
"""Builders of optimizers by their name in ``optimizer.name``."""


class Adam:
    """``torch.optim.AdamW``, fused; without weight decay it equals Adam bit for bit."""

    def __init__(self, weights: dict[str, nn.Parameter], config: OptimizerConfig):
        self._weights = weights
        matrices = [p for p in weights.values() if p.ndim >= 2]
        vectors = [p for p in weights.values() if p.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": vectors},
        ]
        self._adam = torch.optim.AdamW(
            groups,
            lr=0.0,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=0.0,
            fused=True,
        )
        # torch would allocate the state in the first step; a checkpoint needs it before.
        for parameter in [*matrices, *vectors]:
            self._adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def set_lr(self, lr: float) -> None:
        """See ``Optimizer``."""
        _set_lr(self._adam, lr)

    def zero_grad(self) -> None:
        """See ``Optimizer``."""
        self._adam.zero_grad()

    def step(self, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """See ``Optimizer``; the host does not wait for ``found_inf``."""
        # The interface of GradScaler to fused optimizers, which take fp32 scalars only.
        scale, skip = (None if x is None else x.float() for x in (grad_scale, found_inf))
        self._adam.grad_scale = scale  # type: ignore[attr-defined]
        self._adam.found_inf = skip  # type: ignore[attr-defined]
        self._adam.step()

    def state(self) -> dict[str, Tensor]:
        """See ``Optimizer``."""
        return {
            f"{name}.{key}": value
            for name, parameter in self._weights.items()
            for key, value in self._adam.state[parameter].items()
        }


class Muon:
    """``torch.optim.Muon`` for matrices, and Adam for all other weights.

    Args:
        weights: Weights for Muon, by name.
        adam: Optimizer of all others.
        config: Settings.
    """

    def __init__(self, weights: dict[str, "StackedWeight"], adam: Adam, config: OptimizerConfig):
        assert config.momentum is not None  # checked by the config
        self._weights, self._adam = weights, adam
        self._muon = torch.optim.Muon(
            [matrix for weight in weights.values() for matrix in weight.matrices],
            lr=0.0,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            adjust_lr_fn="match_rms_adamw",  # updates as large as Adam's: one schedule suits both
        )
        for weight in weights.values():
            for matrix, momentum in zip(weight.matrices, weight.momenta, strict=True):
                self._muon.state[matrix]["momentum_buffer"] = momentum

    def set_lr(self, lr: float) -> None:
        """See ``Optimizer``."""
        self._adam.set_lr(lr)
        _set_lr(self._muon, lr)

    def zero_grad(self) -> None:
        """See ``Optimizer``."""
        self._adam.zero_grad()
        for weight in self._weights.values():
            weight.parameter.grad = None

    def step(self, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """See ``Optimizer``; the host waits for ``found_inf``, as torch's Muon cannot read it."""
        if found_inf is not None and found_inf.item():
            return
        self._adam.step(grad_scale, found_inf)
        for weight in self._weights.values():
            weight.split_gradient(grad_scale)
        self._muon.step()
        for weight in self._weights.values():
            weight.clear_gradient()

    def state(self) -> dict[str, Tensor]:
        """See ``Optimizer``."""
        momenta = {f"{name}.momentum_buffer": w.momentum for name, w in self._weights.items()}
        return self._adam.state() | momenta


class StackedWeight:
    """Parameter that stacks one or more matrices, each also a tensor on the same memory.

    Args:
        parameter: [sum of sizes, N].
        sizes: Number of rows of each matrix.
    """

    def __init__(self, parameter: nn.Parameter, sizes: list[int]):
        self.parameter, self._sizes = parameter, sizes
        self.matrices = parameter.detach().split(sizes)
        self.momentum = torch.zeros_like(parameter)
        self.momenta = self.momentum.split(sizes)

    def split_gradient(self, grad_scale: Tensor | None) -> None:
        """Gives each matrix its rows of the gradient, divided by ``grad_scale``."""
        if self.parameter.grad is not None:
            if grad_scale is not None:
                self.parameter.grad.div_(grad_scale)
            parts = self.parameter.grad.split(self._sizes)
            for matrix, part in zip(self.matrices, parts, strict=True):
                matrix.grad = part

    def clear_gradient(self) -> None:
        """Drops the gradients of the matrices, whose memory would outlive ``zero_grad``."""
        for matrix in self.matrices:
            matrix.grad = None


def hidden_matrices(model: nn.Module) -> dict[str, list[int]]:
    """Names of the weights of linear layers → number of rows of each matrix stacked in them.

    Muon orthogonalises the update of a matrix, which is meant for one linear map: W^Q, W^K and W^V
    in one weight are three. Embeddings and learned positions are lookup tables, not linear maps.
    """
    sizes: dict[nn.Module, list[int]] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            sizes[module.qkv_proj] = module.sizes
        elif isinstance(module, CrossKVProjection):
            sizes[module.proj] = module.sizes
    return {
        f"{name}.weight": sizes.get(module, [module.out_features])
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }


def _set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
