"""Exponential moving average (EMA) of the weights."""

import copy

import torch
from torch import Tensor

from transformer_mt.checkpoint import ema_state, parameters
from transformer_mt.model.transformer import Transformer


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
