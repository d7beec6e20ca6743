"""Dynamic loss scaling for fp16 training (Micikevicius et al. 2018, §3.2).

``torch.amp.GradScaler`` decides separately for each optimizer whether to skip an update, and its
state is Python numbers; here one decision holds for all, without synchronising host and device, and
the state is tensors that a checkpoint copies.
"""

import torch
from torch import Tensor

_INITIAL_SCALE, _MAX_SCALE = 2.0**16, 2.0**24
_GROWTH_INTERVAL = 2000
"""Updates without overflow after which the scale is doubled, as in ``GradScaler``."""


class LossScaler:
    """Loss scale that is halved when gradients overflow and doubled after 2,000 updates without."""

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
