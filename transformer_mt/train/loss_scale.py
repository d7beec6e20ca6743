"""The loss scale that keeps small fp16 gradients from vanishing (Micikevicius et al. 2018, §3.2).

``torch.amp.GradScaler`` does the same for torch's own optimizers. Here the factor is divided out
together with the clipping, one decision holds for all optimizers, and the state is tensors that a
checkpoint copies: no step waits for the device.
"""

import torch
from torch import Tensor

_FIRST, _LARGEST = 2.0**16, 2.0**24
_PATIENCE = 2000
"""Updates without an overflow after which the factor is doubled, as in GradScaler."""


class LossScaler:
    """A factor on the loss: halved when gradients overflow, doubled after long without."""

    def __init__(self, device: torch.device):
        self.factor = torch.full((), _FIRST, device=device)
        self._good = torch.zeros((), device=device)

    def update(self, overflow: Tensor) -> None:
        """Takes in whether the latest gradient overflowed, a scalar bool on the device."""
        self._good.add_(1).mul_(~overflow)
        grow = self._good >= _PATIENCE
        self._good.mul_(~grow)
        self.factor.mul_(torch.where(overflow, 0.5, 1.0)).mul_(torch.where(grow, 2.0, 1.0))
        self.factor.clamp_(1.0, _LARGEST)

    def state(self) -> dict[str, Tensor]:
        """The tensors in use, by name."""
        return {"loss_scale.factor": self.factor, "loss_scale.good": self._good}
