"""Where a run stands: all that decides how it goes on, beside the weights and the optimizer."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from transformer_mt.config import TrainConfig
from transformer_mt.distributed import World
from transformer_mt.train.step import StepResult


@dataclass
class Progress:
    """What ``state.json`` of a checkpoint holds."""

    step: int = 0
    """Updates done."""
    seconds: float = 0.0
    """Time spent in training and validations."""
    best_step: int = 0
    """The checkpoint with the best validation; 0 before the first."""
    best: float | None = None
    """Its BLEU, or its negative log-likelihood, by ``train.best_by``."""
    best_nll: float | None = None
    """Its negative log-likelihood, where known."""
    stale: int = 0
    """Validations since."""
    skipped: int = 0
    """Updates skipped in all, as their gradient was not finite."""
    totals: dict[str, float] = field(default_factory=dict)
    """Sums of the updates since the last line of the log."""

    def to_state(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Progress":
        """From what a checkpoint holds, which is more."""
        state = {"best_nll": None, **state}  # those of before 2026-11-21 do not have it
        return cls(**{field.name: state[field.name] for field in fields(cls)})

    def validated(self, values: dict[str, float], by: str) -> None:
        """Takes in a validation of the weights of this step."""
        value, nll = values[by], values["nll"]
        sign = 1 if by == "bleu" else -1
        better = self.best is None or sign * value > sign * self.best  # NaN is never better
        if value == self.best == 0 and self.best_nll is not None:
            better = nll < self.best_nll  # a young model, or text without spaces, has no BLEU
        if better:
            self.best, self.best_nll, self.best_step, self.stale = value, nll, self.step, 0
        else:
            self.stale += 1


@dataclass(frozen=True)
class Limits:
    """The run's intervals and its end, in updates, whatever unit the configuration counts in."""

    last_step: int
    checkpoint_every: int
    validate_every: int
    max_seconds: float
    patience: float

    @classmethod
    def of(cls, config: TrainConfig, steps_per_epoch: int) -> "Limits":
        """Those that a configuration names."""
        unit, usual = (steps_per_epoch, 1) if config.interval == "epoch" else (1, 1500)
        epochs = config.max_epochs
        last = config.max_steps
        return cls(
            last_step=last if epochs is None else min(last, epochs * steps_per_epoch),
            checkpoint_every=(config.checkpoint_every or usual) * unit,
            validate_every=(config.validate_every or usual) * unit,
            max_seconds=float("inf") if config.max_hours is None else config.max_hours * 3600,
            patience=float("inf") if config.patience is None else config.patience,
        )

    def is_last(self, at: Progress) -> bool:
        """Whether no update is to follow, as far as can be said before this step's validation."""
        return at.step >= self.last_step or at.seconds >= self.max_seconds

    def is_over(self, at: Progress) -> bool:
        """Whether no update is to follow."""
        return self.is_last(at) or at.stale >= self.patience

    def why(self, at: Progress) -> str:
        """What ended a run, and its setting."""
        if at.step >= self.last_step:
            return "the last, by train.max_steps or train.max_epochs"
        if at.seconds >= self.max_seconds:
            return "its time is up (train.max_hours)"
        return f"{at.stale} validations in a row were no better (train.patience)"

    def wants_validation(self, at: Progress) -> bool:
        """Whether the weights of this step are to be validated."""
        return at.step > 0 and (at.step % self.validate_every == 0 or self.is_last(at))

    def is_averaged(self, step: int) -> bool:
        """Whether a checkpoint of this step counts among those that are averaged.

        Those that a signal or a validation made us save in between do not: a run that was
        interrupted ends as it would have otherwise.
        """
        return step % self.checkpoint_every == 0


class Totals:
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
