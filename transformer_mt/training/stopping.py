"""Stopping criteria, and the intervals of validations and checkpoints."""

import math

from transformer_mt.config import TrainConfig
from transformer_mt.training.training_state import TrainingState

_DEFAULT_INTERVAL = {"step": 1500, "epoch": 1}


class StoppingCriteria:
    """When to validate, when to save a checkpoint, and when to stop.

    Args:
        config: Limits and intervals; ``interval: epoch`` counts intervals in epochs.
        steps_per_epoch: Number of updates in one epoch.

    Attributes:
        last_step: Maximum number of updates of the run.
        checkpoint_every: Number of updates between two checkpoints that are averaged.
        validate_every: Number of updates between two validations.
    """

    def __init__(self, config: TrainConfig, steps_per_epoch: int):
        self._config = config
        unit = steps_per_epoch if config.interval == "epoch" else 1
        default = _DEFAULT_INTERVAL[config.interval]
        self.checkpoint_every = (config.checkpoint_every or default) * unit
        self.validate_every = (config.validate_every or default) * unit
        epochs = math.inf if config.max_epochs is None else config.max_epochs
        self.last_step = int(min(config.max_steps, epochs * steps_per_epoch))

    def is_last_update(self, state: TrainingState) -> bool:
        """Whether the limit of updates or of time is reached; its validation may still follow."""
        hours = math.inf if self._config.max_hours is None else self._config.max_hours
        return state.step >= self.last_step or state.seconds >= hours * 3600

    def should_stop(self, state: TrainingState) -> bool:
        """Whether no update follows: a limit is reached, or patience is exhausted."""
        patience = math.inf if self._config.patience is None else self._config.patience
        return self.is_last_update(state) or state.validations_without_improvement >= patience

    def reason(self, state: TrainingState) -> str:
        """Why a run has stopped, with the setting."""
        config = self._config
        if state.step >= self.last_step:
            if state.step >= config.max_steps:
                return f"reached train.max_steps={config.max_steps}"
            return f"reached train.max_epochs={config.max_epochs}"
        if self.is_last_update(state):
            return f"reached train.max_hours={config.max_hours}"
        count = state.validations_without_improvement
        return f"no improvement in {count} validations (train.patience)"

    def needs_validation(self, state: TrainingState) -> bool:
        """Whether the weights of this step are to be validated."""
        due = state.step % self.validate_every == 0 or self.is_last_update(state)
        return state.step > 0 and due

    def is_averaged(self, step: int) -> bool:
        """Whether a checkpoint of this step belongs to those that may be averaged.

        Checkpoints that a signal or a validation caused in between do not: an interrupted run
        gives the same final model as an uninterrupted one.
        """
        return step % self.checkpoint_every == 0
