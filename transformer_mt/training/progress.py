"""Progress of a run: what its checkpoints store of it, and what is due after an update."""

import math
from dataclasses import dataclass, field

from transformer_mt.config import TrainConfig

_CHANCE = {"bleu": 1.0, "chrf": 10.0}
"""Scores below which their order is chance: the model cannot translate yet."""
_CHECKPOINT_SHARE = 0.015
"""Default interval of the averaged checkpoints, as a share of the run: 1,500 of 100,000 updates, or
10 minutes of 12 hours (§5.2, §6.1)."""


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
    """Sums over the updates since the last line of the log (``MetricSums.read``)."""
    is_regular: bool = False
    """Whether this step is the first of a checkpoint interval: only such checkpoints are averaged.
    Others, that a signal or a validation causes, are not: an interrupted run gives the same final
    model as an uninterrupted one."""
    num_regular: int = 0
    """Number of regular checkpoints up to this step."""
    metrics: dict[str, float] | None = None
    """Results of the validation of this step; None if it has not been validated."""

    def record_validation(self, metrics: dict[str, float], best_by: str) -> None:
        """Compares a validation of the current weights with the best one so far.

        The step's checkpoint stores the result; if the process ends before that, the validation is
        repeated. While the best and the new score are equal, or below ``_CHANCE``, the negative
        log-likelihood decides.

        Args:
            metrics: Results of the validation, of which ``nll`` and ``best_by`` are used.
            best_by: The metric to compare; higher is better, except for ``nll``.
        """
        self.metrics = metrics
        metric = deciding_metric(best_by, metrics[best_by], self.best or 0.0)
        if self.best is None or is_better(metrics[metric], self.best_value(metric), metric):
            self.best, self.best_nll = metrics[best_by], metrics["nll"]
            self.best_step, self.stale = self.step, 0
        else:
            self.stale += 1

    def best_value(self, metric: str) -> float:
        """The value of ``train.best_by``, or of ``nll``, in the best validation."""
        value = self.best_nll if metric == "nll" else self.best
        assert value is not None
        return value


def deciding_metric(best_by: str, value: float, other: float) -> str:
    """The metric that decides which of two validations, with these scores, is better."""
    is_chance = value == other or max(value, other) < _CHANCE.get(best_by, -math.inf)
    return "nll" if is_chance else best_by


def is_better(value: float, other: float, metric: str) -> bool:
    """Whether a value of a metric is better than another."""
    return value < other if metric == "nll" else value > other


class StoppingCriteria:
    """When to validate, to save a checkpoint, and to stop.

    Args:
        config: Limits and intervals.

    Attributes:
        max_steps: Maximum number of updates of the run.
        max_seconds: Maximum time of training and validations.
    """

    def __init__(self, config: TrainConfig):
        self._config = config
        self.max_steps = config.max_steps
        self.max_seconds = math.inf if config.max_hours is None else config.max_hours * 3600

    def interval(self, state: TrainingState) -> int:
        """Number of the checkpoint interval that a state is in, counted from 0."""
        if self._config.checkpoint_every:
            return state.step // self._config.checkpoint_every
        progress = max(state.step / self.max_steps, state.seconds / self.max_seconds)
        return int(progress / _CHECKPOINT_SHARE + 1e-9)  # 0.045 / 0.015 is less than 3

    def expected_steps(self, state: TrainingState) -> float:
        """Number of updates at the end of the run, if they take as long as those so far.

        So a schedule that ends with the run follows the larger share of updates and time used.
        """
        if state.seconds == 0:
            return self.max_steps
        return min(self.max_steps, state.step * self.max_seconds / state.seconds)

    def stops(self, state: TrainingState) -> str | None:
        """Why no update follows, with the setting; None if one does. A validation may follow."""
        config = self._config
        if state.step >= self.max_steps:
            return f"reached train.max_steps={config.max_steps}"
        if state.seconds >= self.max_seconds:
            return f"reached train.max_hours={config.max_hours}"
        if config.patience is not None and state.stale >= config.patience:
            return f"no improvement in {state.stale} validations (train.patience)"
        return None

    def needs_validation(self, state: TrainingState) -> bool:
        """Whether the weights of this step are to be validated: regularly, and the last ones."""
        is_due = state.step % self._config.validate_every == 0
        return state.step > 0 and (is_due or self.stops(state) is not None)
