"""An exponentially weighted mean of the weights, kept beside them while they are trained."""

import copy

import torch
from torch import Tensor

from transformer_mt.checkpoint import ema_state, parameters
from transformer_mt.model.transformer import Transformer


class EMA:
    """mean ← d · mean + (1 − d) · weights, after each update t; d = min(decay, (1 + t) / (10 + t)).

    The smaller d of the first updates lets it forget the random weights that all began with.

    Args:
        model: The model in training.
        decay: Weight of the past.
    """

    def __init__(self, model: Transformer, decay: float):
        self._weights, self._decay = list(parameters(model).values()), decay
        self.model = copy.deepcopy(model)
        """The model with the mean as its weights."""
        self._means = list(parameters(self.model).values())

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after update ``step``."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._means, self._weights, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """The tensors in use, by name."""
        return ema_state(parameters(self.model))
