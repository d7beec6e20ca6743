"""Experiment trackers: their registry, and the one that a run writes to, which forwards to all."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL.Image import Image
from tqdm import tqdm

from transformer_mt.config import TrainJob, dotted
from transformer_mt.errors import InputError
from transformer_mt.training.trackers.background import BackgroundTracker
from transformer_mt.training.trackers.tracker import TrackedRun, Tracker

TRACKERS = {
    "tensorboard": "TensorBoardTracker",
    "trackio": "TrackioTracker",
    "wandb": "WandbTracker",
    "mlflow": "MlflowTracker",
}
"""Class of each tracker; its module, its package and its extra have the tracker's name."""

_IN_PROCESS = ("tensorboard",)
"""Trackers that only write local files, as ``metrics.jsonl``; all others get their own process."""

log = logging.getLogger(__name__)


def check_installed(names: Sequence[str]) -> None:
    """Raises ``InputError`` if a tracker's package is not installed; imports none."""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # without an origin: any folder of this name
            raise InputError(
                f"trackers=[{name}] needs {name}: pip install 'transformer-mt[{name}]'"
            )


def tracker_class(name: str) -> Callable[[TrackedRun], Any]:
    """The class of a registered tracker; imports its package."""
    module: Any = import_module(f"{__name__}.{name}")
    return getattr(module, TRACKERS[name])


@contextmanager
def open_trackers(job: TrainJob | None, steps_done: int) -> Iterator["Trackers"]:
    """Opens the trackers of a job for the context; None opens none, as on all ranks but one."""
    if job is None:
        yield Trackers()
        return
    settings = {
        key: value if type(value) in (int, float) else str(value)
        for key, value in dotted(asdict(job)).items()
    }
    run = TrackedRun(Path(job.run_dir), settings, steps_done)
    trackers = Trackers(job.trackers, run)
    try:
        yield trackers
        trackers.finished = True
    finally:
        trackers.close()


class Trackers:
    """Forwards to several registered trackers; one that fails is switched off with a warning."""

    def __init__(self, names: Sequence[str] = (), run: TrackedRun | None = None):
        self.finished = False
        """Whether the run has reached its end."""
        self._open: dict[str, Tracker] = {}
        for name in names:
            assert run is not None
            with self._switched_off_on_failure(name):
                self._open[name] = (
                    tracker_class(name)(run)
                    if name in _IN_PROCESS
                    else BackgroundTracker(name, run)
                )

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train`` or ``valid`` by name."""
        self._each(lambda tracker: tracker.log_scalars(split, step, values))

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""
        self._each(lambda tracker: tracker.log_samples(step, samples))

    def log_attention(self, step: int, maps: Mapping[str, Image], caption: str) -> None:
        """Logs attention weights of one sample, as a picture for each kind of attention."""
        self._each(lambda tracker: tracker.log_attention(step, maps, caption))

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs the scores of the test set by name."""
        self._each(lambda tracker: tracker.log_final_scores(step, scores))

    def close(self) -> None:
        """Flushes and closes all trackers."""
        self._each(lambda tracker: tracker.close(self.finished))
        self._open.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            with self._switched_off_on_failure(name):
                call(tracker)

    @contextmanager
    def _switched_off_on_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            with tqdm.external_write_mode(file=sys.stderr):
                log.warning("warning: the tracker %s is switched off: %s", name, reason)
