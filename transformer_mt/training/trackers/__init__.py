"""Experiment trackers, and the threads in which they record a run.

A tracker is a class with the methods of ``tensorboard.TensorBoardTracker``, in
``registries.TRACKERS``. It is opened with a ``TrackedRun``, in the thread that makes all calls. A
method may raise anything, or never return: the tracker is then switched off.
"""

import logging
import math
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from PIL import Image
from tqdm import tqdm

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.model.attention_maps import KINDS, AttentionMaps, heat_map
from transformer_mt.registries import TRACKERS

PROJECT = "transformer_mt"
"""Project or experiment of all runs, unless a tracker's own environment variable names another."""

_MAX_QUEUED = 1000
"""Maximum number of records that wait for a tracker."""
_CLOSE_SECONDS = 15.0
"""Maximum time that the end of a run waits for its trackers."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedRun:
    """A run to record."""

    folder: Path
    """Run folder."""
    settings: dict[str, float | str]
    """The configuration by dotted names."""
    steps_done: int
    """Updates done so far."""

    def store(self, tracker: str) -> Path:
        """Folder for a tracker's local files; it exists."""
        folder = self.folder / run_layout.TRACKERS / tracker
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def entry(self, tracker: str) -> str:
        """Identifier of the run in a tracker, random and the same for all starts of the run."""
        path = self.store(tracker) / "entry"
        entry = path.read_text("ascii", errors="replace") if path.exists() else ""
        if not entry.isalnum():
            entry = secrets.token_hex(4)
            write_text(path, entry)
        return entry


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
    settings = {
        key: value if type(value) in (int, float) else str(value)
        for key, value in dotted(asdict(job)).items()
    }
    prints = set(job.trackers) - {"tensorboard"}
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere if prints else sys.stdout):
        trackers = Trackers(job.trackers, TrackedRun(Path(job.run_dir), settings, steps_done))
        finished = False
        try:
            yield trackers
            finished = True
        finally:
            trackers.close(finished)


class Trackers:
    """The trackers of a run. Calls are queued, so that training waits for none of them."""

    def __init__(self, names: Sequence[str] = (), run: TrackedRun | None = None):
        self._recorders = [_Recorder(name, run) for name in names if run is not None]

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train``, ``valid`` or ``test`` by name, except NaN and infinity."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._send("log_scalars", split, step, finite)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation: source, reference, translation."""
        self._send("log_samples", step, samples)

    def log_attention(self, step: int, maps: AttentionMaps) -> None:
        """Logs attention weights of one sample, as a picture for each kind of attention."""
        pictures = {kind: Image.fromarray(heat_map(maps.layers(kind)[0]).numpy()) for kind in KINDS}
        caption = [
            "One map for each layer (rows) and head (columns). In a map, a row is the attending "
            "token and a column the token attended to; black is 1, white is 0.",
            f"Source: {' '.join(maps.src)}",
            f"Target: {' '.join(maps.tgt_in)}",
        ]
        self._send("log_attention", step, pictures, "\n\n".join(caption))

    def close(self, finished: bool) -> None:
        """Closes all trackers; those that take too long are left behind."""
        self._send("close", finished)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for recorder in self._recorders:
            recorder.join(max(0.0, deadline - time.monotonic()))
            if recorder.is_alive():
                recorder.switch_off(f"it did not finish within {_CLOSE_SECONDS:.0f} s")

    def _send(self, method: str, *arguments: object) -> None:
        for recorder in self._recorders:
            recorder.send(method, arguments)


class _Recorder(threading.Thread):
    """The thread of one tracker: opens it and makes the calls in the queue until it is closed.

    As a daemon it does not keep the process alive if the tracker hangs.
    """

    def __init__(self, tracker: str, run: TrackedRun):
        super().__init__(name=f"tracker {tracker}", daemon=True)
        self._tracker, self._run = tracker, run
        self._calls: queue.Queue[tuple[str, tuple[object, ...]]] = queue.Queue(_MAX_QUEUED)
        self._switched_off = threading.Lock()
        self.start()

    def run(self) -> None:
        """Runs in the thread."""
        try:
            tracker: Any = resolve_name(TRACKERS[self._tracker])(self._run)
            if tracker.location:
                self._log(logging.INFO, f"{self._tracker}: {tracker.location}")
            method = ""
            while method != "close" and not self._switched_off.locked():
                method, arguments = self._calls.get()
                getattr(tracker, method)(*arguments)
        except (Exception, SystemExit) as error:
            self.switch_off(" ".join(str(error).split()) or type(error).__name__)

    def send(self, method: str, arguments: tuple[object, ...]) -> None:
        """Queues a call; never waits."""
        if self._switched_off.locked():
            return
        try:
            self._calls.put_nowait((method, arguments))
        except queue.Full:
            self.switch_off(f"it has not accepted the last {_MAX_QUEUED} records")

    def switch_off(self, reason: str) -> None:
        """Stops recording, with one warning however often it is called."""
        if self._switched_off.acquire(blocking=False):
            text = f"warning: the tracker {self._tracker} is switched off: {reason}"
            self._log(logging.WARNING, text)

    @staticmethod
    def _log(level: int, text: str) -> None:
        with tqdm.external_write_mode(file=sys.stderr):
            log.log(level, "%s", text)
