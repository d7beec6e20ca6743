"""Experiment trackers of a run, whose packages write in the background what they are given.

A tracker is a class with the methods of ``tensorboard.TensorBoardTracker``, in
``registries.TRACKERS``. They may raise and print anything: ``Trackers`` is their only caller.
"""

import io
import logging
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.registries import TRACKERS

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""

log = logging.getLogger(__name__)


def check_installed(names: Sequence[str]) -> None:
    """Raises ``InputError`` if a tracker's package is not installed; imports none."""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # without an origin: any folder of this name
            raise InputError(f"trackers=[{name}] needs {name}: pip install {name}")


def flat_settings(job: TrainJob) -> dict[str, float | str]:
    """The settings of a job by dotted names; all but numbers are text."""
    values = dotted(asdict(job)).items()
    return {key: x if type(x) in (int, float) else str(x) for key, x in values}


def local_store(job: TrainJob, tracker: str) -> tuple[Path, str]:
    """A tracker's folder, and the run's identifier in it: random, the same for all starts."""
    folder = Path(job.run_dir) / run_layout.TRACKERS / tracker
    folder.mkdir(parents=True, exist_ok=True)
    if not (entry := folder / "entry").exists():
        write_text(entry, secrets.token_hex(4))
    return folder, entry.read_text("ascii")


class Trackers:
    """The trackers of a run, open within ``with``; None has none, as all ranks but one.

    A tracker that raises is switched off with one warning. What it prints is dropped, because
    standard output is for results.
    """

    def __init__(self, job: TrainJob | None = None, steps_done: int = 0):
        self._opened: dict[str, Any] = {}
        for name in job.trackers if job else ():
            with self._guarding(name):
                self._opened[name] = resolve_name(TRACKERS[name])(job, steps_done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._call("close", error is None)

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train``, ``valid`` or ``test`` by name, except NaN and infinity."""
        finite = {key: x for key, x in values.items() if math.isfinite(x)}
        self._call("log", split, step, finite)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""
        table = [["source", "reference", "translation"], *map(list, samples)]
        self._call("log_samples", step, table)

    def _call(self, method: str, *arguments: object) -> None:
        for name, tracker in [*self._opened.items()]:
            with self._guarding(name):
                getattr(tracker, method)(*arguments)

    @contextmanager
    def _guarding(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except (Exception, SystemExit) as error:
            self._opened.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            log.warning("warning: the tracker %s is switched off: %s", name, reason)
