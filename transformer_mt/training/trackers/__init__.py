"""Experiment trackers of a run, whose packages write in the background what they are given.

A tracker is a class with the methods of ``tensorboard.TensorBoardTracker``, in
``registries.TRACKERS``. They may raise anything: the tracker is then switched off.
"""

import logging
import math
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tqdm import tqdm

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.registries import TRACKERS

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""

Values = Mapping[str, float | list[list[str]]]
"""Numbers and tables by ``<split>/<name>``."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedRun:
    """A run to record: its folder, settings by dotted names, and number of updates done."""

    folder: Path
    settings: dict[str, float | str]
    steps_done: int

    def store(self, tracker: str) -> Path:
        """Folder for a tracker's local files; it exists."""
        folder = self.folder / run_layout.TRACKERS / tracker
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def entry(self, tracker: str) -> str:
        """Identifier of the run in a tracker, random and the same for all starts of the run."""
        path = self.store(tracker) / "entry"
        if not path.exists():
            write_text(path, secrets.token_hex(4))
        return path.read_text("ascii")


def check_installed(names: Sequence[str]) -> None:
    """Raises ``InputError`` if a tracker's package is not installed; imports none."""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # without an origin: any folder of this name
            raise InputError(f"trackers=[{name}] needs {name}: pip install {name}")


@contextmanager
def open_trackers(job: TrainJob | None, steps_done: int) -> Iterator["Trackers"]:
    """Opens the trackers of a job for the context; None opens none, as on all ranks but one.

    Within it nothing is printed to standard output, which is for results: the packages of trackers
    other than TensorBoard print messages, and ask for passwords if it is a terminal.
    """
    if job is None:
        yield Trackers()
        return
    values = dotted(asdict(job)).items()
    settings = {key: x if type(x) in (int, float) else str(x) for key, x in values}
    run, finished = TrackedRun(Path(job.run_dir), settings, steps_done), False
    prints = set(job.trackers) - {"tensorboard"}
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere if prints else sys.stdout):
        trackers = Trackers(job.trackers, run)
        try:
            yield trackers
            finished = True
        finally:
            trackers.close(finished)


class Trackers:
    """The trackers of a run; one that raises is switched off with one warning."""

    def __init__(self, names: Sequence[str] = (), run: TrackedRun | None = None):
        self._opened: dict[str, Any] = {}
        for name in names:
            with self._switching_off(name):
                self._opened[name] = tracker = resolve_name(TRACKERS[name])(run)
                if tracker.location:
                    log.info("%s: %s", name, tracker.location)

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train``, ``valid`` or ``test`` by name, except NaN and infinity."""
        finite = {f"{split}/{key}": x for key, x in values.items() if math.isfinite(x)}
        self._call("log", step, finite)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""
        table = [["source", "reference", "translation"], *map(list, samples)]
        self._call("log", step, {"valid/translations": table})

    def close(self, finished: bool) -> None:
        """Closes all trackers, which write the rest."""
        self._call("close", finished)

    def _call(self, method: str, *arguments: object) -> None:
        for name, tracker in [*self._opened.items()]:
            with self._switching_off(name):
                getattr(tracker, method)(*arguments)

    @contextmanager
    def _switching_off(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            self._opened.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            with tqdm.external_write_mode(file=sys.stderr):
                log.warning("warning: the tracker %s is switched off: %s", name, reason)
