"""Experiment trackers: the interface, and the registry of those that a run writes to.

To add a tracker, write a module with a class that has the methods of ``Tracker``, and register the
class in ``TRACKERS``.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from transformer_mt.config import TrainJob
from transformer_mt.training.trackers.tensorboard import TensorBoardTracker
from transformer_mt.training.validation import AttentionSample, TranslationSample


class Tracker(Protocol):
    """Records one run; everything logged must survive a kill of the process."""

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train`` or ``valid`` by name."""
        ...

    def log_samples(self, step: int, samples: Sequence[TranslationSample]) -> None:
        """Logs sample translations of a validation."""
        ...

    def log_attention(self, step: int, attention: AttentionSample) -> None:
        """Logs the attention weights of one sample."""
        ...

    def log_final_scores(self, step: int, scores: Mapping[str, float], job: TrainJob) -> None:
        """Logs the scores of the test set together with the hyper-parameters."""
        ...

    def close(self) -> None:
        """Flushes and closes the tracker."""
        ...


TRACKERS: dict[str, Callable[[Path, int | None], Tracker]] = {
    "tensorboard": TensorBoardTracker,
}
"""Constructors of trackers by name. Arguments: the run folder, and the number of updates done so
far (records of later steps are discarded), or None to add to a finished run."""


def open_trackers(run_dir: Path, last_step: int | None) -> list[Tracker]:
    """Opens every registered tracker."""
    return [tracker(run_dir, last_step) for tracker in TRACKERS.values()]


def log_final_scores(run_dir: Path, job: TrainJob, scores: Mapping[str, float], step: int) -> None:
    """Logs the test scores of a run that ended at ``step`` with all trackers."""
    for tracker in open_trackers(run_dir, None):
        tracker.log_final_scores(step, scores, job)
        tracker.close()
