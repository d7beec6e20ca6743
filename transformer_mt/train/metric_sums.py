"""Sums of losses and counts over updates, kept on the device."""

import torch

from transformer_mt.distributed import World
from transformer_mt.train.step import StepResult


class MetricSums:
    """Sums over updates, on the device, so that an update waits for nothing.

    Args:
        world: The ranks that share the updates.
        max_skipped: Skipped updates in a row that are too many.
    """

    def __init__(self, world: World, max_skipped: int):
        self._world, self._max_skipped = world, max_skipped
        self._sums = torch.zeros(len(_SUMS), dtype=torch.float64, device=world.device)
        # Skipped updates in a row, and where the first row that was too long began, or 0.
        self._row, self._begun = torch.zeros(2, dtype=torch.int64, device=world.device)

    def add(self, step: int, result: StepResult, num_targets: int) -> None:
        """Takes in an update; one that was skipped only as such."""
        good = result.grad_norm.isfinite()
        # What is the same on all ranks comes from one, for the sum over ranks.
        once = torch.stack((good * num_targets, ~good)) * self._world.is_main
        mine = torch.stack((result.loss, result.nll)).double()
        self._sums += torch.cat((torch.where(good, mine, 0.0), once))
        self._row = torch.where(good, 0, self._row + 1)
        too_long = (self._row == self._max_skipped) & (self._begun == 0)
        self._begun = torch.where(too_long, step - self._max_skipped + 1, self._begun)

    def read(self) -> dict[str, float]:
        """The sums, which are left as they are; waits for the device and the other ranks."""
        self._sums = self._world.sum(self._sums)
        values: list[float] = self._sums.tolist()
        # Held by one rank from here on, as they are after a resume: what is added later adds up
        # to the same bits.
        self._sums *= self._world.is_main
        return dict(zip(_SUMS, values, strict=True))

    def state(self) -> dict[str, float]:
        """As ``read``, with what ``restore`` needs beside it."""
        return self.read() | {"row": int(self._row)}

    def restore(self, state: dict[str, float]) -> None:
        """Goes on from what ``state`` gave."""
        sums = [state.get(name, 0.0) for name in _SUMS]
        self._sums = self._sums.new_tensor(sums) * self._world.is_main
        self._row = self._row.new_tensor(int(state.get("row", 0)))

    def clear(self) -> None:
        """Begins anew; skipped updates in a row are counted on."""
        self._sums.zero_()

    def too_many_skipped(self) -> int:
        """The first of too many skipped updates in a row, or 0; waits for the device."""
        return int(self._begun)


_SUMS = ("loss", "nll", "targets", "skipped")
