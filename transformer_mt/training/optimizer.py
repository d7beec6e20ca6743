"""Optimizers: Adam (§5.3), and Muon for the matrices of the layers with Adam for the rest.

To add one, write a function that builds it and register it in ``registries.OPTIMIZERS``.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config import OptimizerConfig
from transformer_mt.model.attention import CrossKVProjection, SelfAttention
from transformer_mt.registries import OPTIMIZERS, load


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> "Optimizer":
    """Builds the optimizer that the config names, for a model already on its device."""
    optimizer: Optimizer = load(OPTIMIZERS, config.name)(model, config)
    return optimizer


def adam(model: nn.Module, config: OptimizerConfig) -> "Optimizer":
    """Adam for all weights, with decoupled weight decay for matrices."""
    weights = dict(model.named_parameters())
    return Optimizer(weights, _adamw(weights.values(), config))


def muon(model: nn.Module, config: OptimizerConfig) -> "Optimizer":
    """Muon for the matrices of the layers, Adam for embeddings, biases and norms."""
    weights = dict(model.named_parameters())
    sizes = hidden_matrices(model)
    stacked = {name: StackedWeight(weights.pop(name), rows) for name, rows in sizes.items()}
    return Optimizer(
        weights, _adamw(weights.values(), config), stacked, _muon(stacked.values(), config)
    )


class Optimizer:
    """A fused optimizer of torch, and optionally a second one for matrices stacked in weights.

    It works on the memory of the weights, so the model must stay on its device.

    Args:
        weights: Parameters of ``fused``, by name.
        fused: Optimizer that supports ``grad_scale`` and ``found_inf``, with allocated state.
        stacked: Parameters of ``matrix_optimizer``, by name.
        matrix_optimizer: Optimizer of the matrices in ``stacked``.
    """

    def __init__(
        self,
        weights: dict[str, nn.Parameter],
        fused: torch.optim.Optimizer,
        stacked: dict[str, "StackedWeight"] | None = None,
        matrix_optimizer: torch.optim.Optimizer | None = None,
    ):
        self._weights, self._fused, self._stacked = weights, fused, stacked or {}
        self._optimizers = [fused] if matrix_optimizer is None else [fused, matrix_optimizer]

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate, which is 0 initially."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr

    def zero_grad(self) -> None:
        """Frees all gradients."""
        for parameter in self._weights.values():
            parameter.grad = None
        for weight in self._stacked.values():
            weight.parameter.grad = None

    def step(self, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """Updates each weight that has a gradient.

        Args:
            grad_scale: Scalar that gradients are divided by first.
            found_inf: Scalar bool; if True, neither weights nor state change. Adam reads it on the
                device; for Muon the host waits for it.
        """
        if self._stacked and found_inf is not None and found_inf.item():
            return
        # The interface of GradScaler to fused optimizers, which take fp32 scalars only.
        scale, skip = (None if x is None else x.float() for x in (grad_scale, found_inf))
        self._fused.grad_scale = scale  # type: ignore[attr-defined]
        self._fused.found_inf = skip  # type: ignore[attr-defined]
        for weight in self._stacked.values():
            weight.split_gradient(grad_scale)
        for optimizer in self._optimizers:
            optimizer.step()
        for weight in self._stacked.values():
            weight.clear_gradient()

    def state(self) -> dict[str, Tensor]:
        """The live state tensors, as ``<parameter>.<quantity>``, complete before the first step.

        Copying the values of a checkpoint into them restores it.
        """
        state = {
            f"{name}.{key}": value
            for name, parameter in self._weights.items()
            for key, value in self._fused.state[parameter].items()
        }
        momenta = {f"{name}.momentum_buffer": w.momentum for name, w in self._stacked.items()}
        return state | momenta


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


# Both allocate in advance the state that torch would allocate in the first step, so that there is
# something to copy a checkpoint into.


def _adamw(parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> torch.optim.AdamW:
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter in parameters:
        (vectors if parameter.ndim < 2 else matrices).append(parameter)
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
    for parameter in [*matrices, *vectors]:
        adamw.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return adamw


def _muon(weights: Iterable["StackedWeight"], config: OptimizerConfig) -> torch.optim.Muon:
    assert config.momentum is not None  # checked by the config
    momenta = {m: b for w in weights for m, b in zip(w.matrices, w.momenta, strict=True)}
    optimizer = torch.optim.Muon(
        list(momenta),
        lr=0.0,
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        adjust_lr_fn="match_rms_adamw",  # updates as large as Adam's: one schedule suits both
    )
    for matrix, momentum in momenta.items():
        optimizer.state[matrix]["momentum_buffer"] = momentum
    return optimizer
