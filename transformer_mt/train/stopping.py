"""The run's intervals and its end."""

from dataclasses import dataclass

from transformer_mt.config import TrainConfig
from transformer_mt.train.training_state import TrainingState


@dataclass(frozen=True)
class StoppingCriteria:
    """The run's intervals and its end, in updates, whatever unit the configuration counts in."""

    last_step: int
    checkpoint_every: int
    validate_every: int
    max_seconds: float
    patience: float

    @classmethod
    def of(cls, config: TrainConfig, steps_per_epoch: int) -> "StoppingCriteria":
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

    def is_last(self, at: TrainingState) -> bool:
        """Whether no update is to follow, as far as can be said before this step's validation."""
        return at.step >= self.last_step or at.seconds >= self.max_seconds

    def is_over(self, at: TrainingState) -> bool:
        """Whether no update is to follow."""
        return self.is_last(at) or at.stale >= self.patience

    def why(self, at: TrainingState) -> str:
        """What ended a run, and its setting."""
        if at.step >= self.last_step:
            return "the last, by train.max_steps or train.max_epochs"
        if at.seconds >= self.max_seconds:
            return "its time is up (train.max_hours)"
        return f"{at.stale} validations in a row were no better (train.patience)"

    def wants_validation(self, at: TrainingState) -> bool:
        """Whether the weights of this step are to be validated."""
        return at.step > 0 and (at.step % self.validate_every == 0 or self.is_last(at))

    def is_averaged(self, step: int) -> bool:
        """Whether a checkpoint of this step counts among those that are averaged.

        Those that a signal or a validation made us save in between do not: a run that was
        interrupted ends as it would have otherwise.
        """
        return step % self.checkpoint_every == 0
