"""Sums of losses and token counts over updates, kept on the device."""

import torch

from transformer_mt.distributed import World
from transformer_mt.training.step import StepResult

_NAMES = ("loss", "nll", "targets", "skipped")


class MetricSums:
    """Sums over the updates of a logging interval; adding to them never waits for the device.

    Args:
        world: Ranks that share the updates.
        max_skipped: Number of consecutive skipped updates that ends the run.
    """

    def __init__(self, world: World, max_skipped: int):
        self._world, self._max_skipped = world, max_skipped
        self._sums = torch.zeros(len(_NAMES), dtype=torch.float64, device=world.device)
        # Number of consecutive skipped updates; first update of the first streak that was too long.
        self._streak, self._too_long_from = torch.zeros(2, dtype=torch.int64, device=world.device)

    def add(self, step: int, result: StepResult, num_targets: int) -> None:
        """Adds one update; a skipped one counts in ``skipped`` only."""
        finite = result.grad_norm.isfinite()
        # Values that are equal on all ranks are added on the main rank only.
        counts = torch.stack((finite * num_targets, ~finite)) * self._world.is_main
        losses = torch.stack((result.loss, result.nll)).double()
        self._sums += torch.cat((torch.where(finite, losses, 0.0), counts))
        self._streak = torch.where(finite, 0, self._streak + 1)
        too_long = (self._streak == self._max_skipped) & (self._too_long_from == 0)
        first = step - self._max_skipped + 1
        self._too_long_from = torch.where(too_long, first, self._too_long_from)

    def read(self) -> dict[str, float]:
        """The sums over all ranks, unchanged; waits for the device and the other ranks."""
        self._sums = self._world.sum(self._sums)
        values: list[float] = self._sums.tolist()
        # The main rank keeps the total, as after a resume: later additions round in the same way.
        self._sums *= self._world.is_main
        return dict(zip(_NAMES, values, strict=True))

    def clear(self) -> None:
        """Sets the sums to zero; the count of consecutive skipped updates continues."""
        self._sums.zero_()

    def first_of_too_many_skipped(self) -> int:
        """First of ``max_skipped`` consecutive skipped updates, or 0; waits for the device."""
        return int(self._too_long_from)

    def state(self) -> dict[str, float]:
        """The sums and the count of consecutive skipped updates, for a checkpoint."""
        return self.read() | {"row": int(self._streak)}

    def restore(self, state: dict[str, float]) -> None:
        """Continues from what ``state`` returned."""
        sums = [state.get(name, 0.0) for name in _NAMES]
        self._sums = self._sums.new_tensor(sums) * self._world.is_main
        self._streak = self._streak.new_tensor(int(state.get("row", 0)))
