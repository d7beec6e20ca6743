"""The interface of an experiment tracker, and the description of a run that it is opened with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL.Image import Image

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""


@dataclass(frozen=True)
class TrackedRun:
    """A run to record."""

    folder: Path
    """Run folder."""
    settings: dict[str, float | str]
    """The configuration by dotted names."""
    steps_done: int
    """Updates done so far."""
    entry: str = ""
    """Identifier of the run's entry in a tracker with its own process; a resumed run keeps it."""
    store: Path = Path()
    """Existing folder for such a tracker's files."""


class Tracker(Protocol):
    """Records one run. It is opened with a ``TrackedRun``; all data are plain values.

    A method may raise anything: the tracker is then switched off for the rest of the run.
    A tracker in its own process also has ``location``: an address or a command that shows the run.
    """

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train`` or ``valid`` by name."""

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""

    def log_attention(self, step: int, maps: Mapping[str, Image], caption: str) -> None:
        """Logs attention weights of one sample, as a picture for each kind of attention."""

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs the scores of the test set by name."""

    def close(self, finished: bool) -> None:
        """Flushes and closes the tracker; ``finished`` is False if the run stopped early."""
