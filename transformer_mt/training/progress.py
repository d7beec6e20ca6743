"""Progress of a run: what its checkpoints store of it, and what is due next."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from transformer_mt.config import TrainConfig

_CHANCE = {"bleu": 1.0, "chrf": 10.0}
"""Scores below which their order is chance: the model cannot translate yet."""
_DEFAULT_INTERVAL = {"step": 1500, "epoch": 1}


@dataclass
class TrainingState:
    """Everything that resuming needs apart from the weights and the optimizer: ``state.json``.

    There is no state of the data or of a random number generator: the batches and the dropout seeds
    of an update are functions of ``train.seed`` and its number.
    """

    step: int = 0
    """Number of updates done."""
    seconds: float = 0.0
    """Time spent on training and validations, in seconds."""
    best_step: int = 0
    """Step of the best validation; 0 before the first validation."""
    best: float | None = None
    """Value of ``train.best_by`` in the best validation."""
    best_nll: float | None = None
    """Negative log-likelihood in the best validation."""
    stale: int = 0
    """Number of validations since the best one."""
    skipped: int = 0
    """Number of updates skipped because the gradient was not finite."""
    totals: dict[str, float] = field(default_factory=dict)
    """Sums over the updates since the last line of the log (``MetricSums.state``)."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "TrainingState":
        """Reads ``state.json``, which has other fields, too, and of early versions fewer."""
        return cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content})

    def record_validation(self, metrics: dict[str, float], best_by: str) -> None:
        """Compares a validation of the current weights with the best one so far.

        While the best and the new score are below ``_CHANCE``, the negative log-likelihood decides.

        Args:
            metrics: Results of the validation; must contain ``nll`` and ``best_by``.
            best_by: The metric to compare; higher is better, except for ``nll``.
        """
        value, nll = metrics[best_by], metrics["nll"]
        sign = -1 if best_by == "nll" else 1
        # NaN is never better.
        better = self.best is None or sign * value > sign * self.best
        if max(value, self.best or 0.0) < _CHANCE.get(best_by, -math.inf):
            better = self.best_nll is None or nll < self.best_nll
        if better:
            self.best, self.best_nll, self.best_step = value, nll, self.step
            self.stale = 0
        else:
            self.stale += 1


class StoppingCriteria:
    """When to log, to validate, to save a checkpoint, and to stop.

    Args:
        config: Limits and intervals; ``interval: epoch`` counts intervals in epochs.
        steps_per_epoch: Number of updates in one epoch.

    Attributes:
        last_step: Maximum number of updates of the run.
        checkpoint_every: Number of updates between two checkpoints that are averaged.
        validate_every: Number of updates between two validations.
        max_seconds: Maximum time of training and validations.
    """

    def __init__(self, config: TrainConfig, steps_per_epoch: int):
        self._config = config
        unit = steps_per_epoch if config.interval == "epoch" else 1
        default = _DEFAULT_INTERVAL[config.interval]
        self.checkpoint_every = (config.checkpoint_every or default) * unit
        self.validate_every = (config.validate_every or default) * unit
        epochs = math.inf if config.max_epochs is None else config.max_epochs
        self.last_step = int(min(config.max_steps, epochs * steps_per_epoch))
        self.max_seconds = math.inf if config.max_hours is None else config.max_hours * 3600

    def next_break(self, step: int) -> int:
        """First update after ``step`` that a log line, a checkpoint or a validation follows."""
        every = (self._config.log_every, self.checkpoint_every, self.validate_every)
        return min(self.last_step, *(step + n - step % n for n in every))

    def logs(self, state: TrainingState) -> bool:
        """Whether a line of the log is due."""
        return self.is_last_update(state) or state.step % self._config.log_every == 0

    def is_last_update(self, state: TrainingState) -> bool:
        """Whether the limit of updates or of time is reached; its validation may still follow."""
        return state.step >= self.last_step or state.seconds >= self.max_seconds

    def should_stop(self, state: TrainingState) -> bool:
        """Whether no update follows: a limit is reached, or patience is exhausted."""
        patience = math.inf if self._config.patience is None else self._config.patience
        return self.is_last_update(state) or state.stale >= patience

    def reason(self, state: TrainingState) -> str:
        """Why a run has stopped, with the setting."""
        config = self._config
        if state.step >= self.last_step:
            if state.step >= config.max_steps:
                return f"reached train.max_steps={config.max_steps}"
            return f"reached train.max_epochs={config.max_epochs}"
        if self.is_last_update(state):
            return f"reached train.max_hours={config.max_hours}"
        return f"no improvement in {state.stale} validations (train.patience)"

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
