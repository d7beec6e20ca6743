"""The optimizer: Adam (§5.3), or Muon for the matrices of the layers and Adam for the rest."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config import OptimizerConfig
from transformer_mt.model.attention import CrossKVProjection, SelfAttention


class Optimizer:
    """PyTorch's Adam and Muon as one optimizer of one model.

    It works on the memory of the weights, so the model must stay on its device.

    Args:
        weights: Parameters for Adam, by name.
        stacks: Parameters for Muon, by name.
        config: Settings of both.
    """

    def __init__(
        self,
        weights: dict[str, nn.Parameter],
        stacks: dict[str, "Stack"],
        config: OptimizerConfig,
    ):
        self._weights, self._stacks = weights, stacks
        self._adam = _adam(weights.values(), config)
        self._parts: list[torch.optim.Optimizer] = [self._adam]
        if stacks:
            self._parts.append(_muon(stacks.values(), config))

    def set_lr(self, lr: float) -> None:
        """Sets the learning rate of the steps to come; it is 0 at first."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = lr

    def zero_grad(self) -> None:
        """Drops all gradients."""
        for parameter in self._weights.values():
            parameter.grad = None
        for stack in self._stacks.values():
            stack.weight.grad = None

    def step(self, divisor: Tensor | None = None, skip: Tensor | None = None) -> None:
        """Moves every weight that has a gradient.

        Args:
            divisor: Scalar that the gradients are divided by first.
            skip: Scalar bool; where it is True nothing moves and nothing is remembered. Adam reads
                it on the device. Muon cannot, and has the host wait for it.
        """
        if self._stacks and skip is not None and skip.item():
            return
        # What amp.GradScaler tells torch's fused kernels, which take fp32 only.
        scale, found = (None if given is None else given.float() for given in (divisor, skip))
        self._adam.grad_scale = scale  # type: ignore[attr-defined]
        self._adam.found_inf = found  # type: ignore[attr-defined]
        for stack in self._stacks.values():
            stack.share_gradient(divisor)
        for part in self._parts:
            part.step()
        for stack in self._stacks.values():
            stack.drop_gradient()

    def state(self) -> dict[str, Tensor]:
        """What it remembers of past gradients, as ``<parameter>.<quantity>``.

        These are the tensors in use: copying a checkpoint's values into them restores it.
        """
        state = {
            f"{name}.{key}": value
            for name, parameter in self._weights.items()
            for key, value in self._adam.state[parameter].items()
        }
        momenta = {f"{name}.momentum_buffer": s.momentum for name, s in self._stacks.items()}
        return state | momenta


class Stack:
    """A weight of one or more matrices, each also a tensor of its own on the same memory.

    Args:
        weight: [sum of sizes, N].
        sizes: Rows of each matrix.
    """

    def __init__(self, weight: nn.Parameter, sizes: list[int]):
        self.weight = weight
        self.momentum = torch.zeros_like(weight)
        self._sizes = sizes
        self.matrices = weight.detach().split(sizes)

    def momenta(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Each matrix with its rows of the momentum."""
        return zip(self.matrices, self.momentum.split(self._sizes), strict=True)

    def share_gradient(self, divisor: Tensor | None) -> None:
        """Gives each matrix its rows of the weight's gradient."""
        if self.weight.grad is not None:
            if divisor is not None:
                self.weight.grad.div_(divisor)
            parts = self.weight.grad.split(self._sizes)
            for matrix, part in zip(self.matrices, parts, strict=True):
                matrix.grad = part

    def drop_gradient(self) -> None:
        """Takes it away again, or its memory would outlive ``zero_grad``."""
        for matrix in self.matrices:
            matrix.grad = None


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """The optimizer that the config names, for a model already on its device."""
    weights = dict(model.named_parameters())
    sizes = hidden_matrices(model) if config.name == "muon" else {}
    stacks = {name: Stack(weights.pop(name), rows) for name, rows in sizes.items()}
    return Optimizer(weights, stacks, config)


def hidden_matrices(model: nn.Module) -> dict[str, list[int]]:
    """The weights of the linear layers, by name, with the rows of each matrix in them.

    Muon makes the update of a matrix orthogonal, which is meant for one linear map: W^Q, W^K and
    W^V in one weight are three. Tables of embeddings and positions are none.
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


# Both allocate at once what torch would in the first step, so that ``state`` is complete from the
# start and there is something to copy a checkpoint into.


def _adam(parameters: Iterable[nn.Parameter], config: OptimizerConfig) -> torch.optim.AdamW:
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter in parameters:
        (vectors if parameter.ndim < 2 else matrices).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors},
    ]
    adam = torch.optim.AdamW(  # without decay, Adam to the last bit
        groups,
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=0.0,
        fused=True,
    )
    for parameter in [*matrices, *vectors]:
        adam.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return adam


def _muon(stacks: Iterable[Stack], config: OptimizerConfig) -> torch.optim.Muon:
    assert config.momentum is not None  # checked by the config
    momenta = [pair for stack in stacks for pair in stack.momenta()]
    muon = torch.optim.Muon(
        [matrix for matrix, _ in momenta],
        lr=0.0,
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        adjust_lr_fn="match_rms_adamw",  # updates as large as Adam's: one schedule suits both
    )
    for matrix, momentum in momenta:
        muon.state[matrix]["momentum_buffer"] = momentum
    return muon
