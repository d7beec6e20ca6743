"""Training state: steps, time, best validation; the content of a checkpoint's ``state.json``."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

_JSON_KEYS = {
    "best_value": "best",
    "validations_without_improvement": "stale",
    "metric_sums": "totals",
}
"""Fields that have another name in ``state.json`` (checkpoint format 3)."""


@dataclass
class TrainingState:
    """Everything that resuming needs apart from the weights and the optimizer.

    There is no state of the data or of a random number generator: the batches and the dropout seeds
    of an update are functions of ``train.seed`` and its number.
    """

    step: int = 0
    """Number of updates done."""
    seconds: float = 0.0
    """Time spent on training and validations, in seconds."""
    best_step: int = 0
    """Step of the best validation; 0 before the first validation."""
    best_value: float | None = None
    """Value of ``train.best_by`` in the best validation."""
    best_nll: float | None = None
    """Negative log-likelihood in the best validation."""
    validations_without_improvement: int = 0
    """Number of validations since the best one."""
    skipped: int = 0
    """Number of updates skipped because the gradient was not finite."""
    metric_sums: dict[str, float] = field(default_factory=dict)
    """Sums over the updates since the last line of the log (``MetricSums.state``)."""

    def to_json(self) -> dict[str, Any]:
        """The content of ``state.json``."""
        return {_JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "TrainingState":
        """Reads ``state.json``, which holds the format and checksums as well."""
        content = {"best_nll": None, **content}  # missing in the first checkpoints of format 3
        keys = {field.name: _JSON_KEYS.get(field.name, field.name) for field in fields(cls)}
        return cls(**{name: content[key] for name, key in keys.items()})

    def record_validation(
        self, metrics: dict[str, float], best_by: str, *, higher_is_better: bool
    ) -> None:
        """Compares a validation of the current weights with the best one so far.

        While the score is 0, as BLEU is at the start of training, the negative log-likelihood
        decides.

        Args:
            metrics: Results of the validation; must contain ``nll`` and ``best_by``.
            best_by: The metric to compare.
            higher_is_better: Its direction.
        """
        value, nll = metrics[best_by], metrics["nll"]
        sign = 1 if higher_is_better else -1
        # NaN is never better.
        better = self.best_value is None or sign * value > sign * self.best_value
        if value == self.best_value == 0 and self.best_nll is not None:
            better = nll < self.best_nll
        if better:
            self.best_value, self.best_nll, self.best_step = value, nll, self.step
            self.validations_without_improvement = 0
        else:
            self.validations_without_improvement += 1
