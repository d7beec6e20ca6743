"""Experiment trackers of a run (``protocols.Tracker``), and the one for TensorBoard.

A tracker imports its package itself, and may raise and print anything: ``Trackers`` is its only
caller.
"""

import io
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from string import punctuation
from typing import Any

from transformer_mt import run_layout
from transformer_mt.config import TrainJob
from transformer_mt.errors import InputError
from transformer_mt.protocols import TrackedRun, Tracker
from transformer_mt.registries import TRACKERS

log = logging.getLogger(__name__)


def check_installed(names: Sequence[str]) -> None:
    """Raises ``InputError`` if a tracker's package is not installed; imports none."""
    for name in names:
        if not getattr(find_spec(name), "origin", None):  # a folder of this name has none
            raise InputError(f"trackers=[{name}] needs {name}: pip install {name}")


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of a run, open within ``with``; None has none, as all ranks but one.

    A tracker that raises is switched off with one warning. What it prints is dropped, because
    standard output is for results.
    """

    def __init__(self, job: TrainJob | None = None, steps_done: int = 0):
        self._opened: dict[str, Tracker] = {}
        if job is None:
            return
        for name in job.trackers:
            folder = Path(job.run_dir) / run_layout.TRACKERS / name
            with self._guarding(name):
                self._opened[name] = resolve_name(TRACKERS[name])(
                    TrackedRun(job, steps_done, folder)
                )

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


class TensorBoardTracker:
    """Writes TensorBoard event files; events after ``steps_done`` updates are purged."""

    def __init__(self, run: TrackedRun):
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        folder = str(Path(run.job.run_dir) / run_layout.TENSORBOARD)
        # Flushed soon: a killed run resumes from a checkpoint and never logs the steps before it.
        self._writer: Any = writer(folder, purge_step=run.steps_done + 1, flush_secs=1)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves."""
        for key, value in values.items():
            self._writer.add_scalar(f"{split}/{key}", value, step)

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds a table, of column names and rows of text."""
        # Markdown then renders the text as it is, also in a table.
        literal = {ord(sign): f"&#{ord(sign)};" for sign in punctuation}
        names, *rows = [" | ".join(cell.translate(literal) for cell in row) for row in table]
        lines = [names, "--- | --- | ---", *rows]
        self._writer.add_text("valid/translations", "\n".join(f"| {x} |" for x in lines), step)

    def close(self, finished: bool) -> None:
        """Writes the rest; other trackers also record whether the run has finished."""
        self._writer.close()
