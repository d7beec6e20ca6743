"""Where a run stands: all that decides how it goes on, beside the weights and the optimizer."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class TrainingState:
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
    def from_state(cls, state: dict[str, Any]) -> "TrainingState":
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
