"""The process of one tracker: reads calls as JSON lines from standard input and makes them.

Entries are complete and have no duplicates, however often a run is killed and resumed: the worker
remembers the last step that it has recorded, takes the missing ones from ``metrics.jsonl``, and
ignores the repeated ones, which are equal. It imports no PyTorch.
"""

import base64
import io
import json
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from PIL import Image

from transformer_mt import run_layout
from transformer_mt.files import write_text
from transformer_mt.training.metrics_log import read_records
from transformer_mt.training.trackers import tracker_class
from transformer_mt.training.trackers.tracker import TrackedRun

_MAX_ERROR = 300
"""Maximum number of characters of an error that are shown."""
_EXIT_SECONDS = 30.0


class Recorder:
    """Opens a tracker, continues its entry, and forwards to it what it has not recorded yet.

    The state is in ``trackers/NAME.json`` of the run folder.
    """

    def __init__(self, name: str, folder: Path, settings: dict[str, float | str], steps_done: int):
        place = folder / run_layout.TRACKERS
        self._path, store = place / f"{name}.json", place / name
        store.mkdir(exist_ok=True)
        self._entry, self._recorded = _read_state(self._path)
        self._save()  # before there is an entry, so that a kill leaves none without its name
        self._run = TrackedRun(folder, settings, steps_done, self._entry, store)
        self._tracker = tracker_class(name)(self._run)
        self.location = self._tracker.location

    def missing(self) -> Iterator[dict[str, Any]]:
        """Arguments of ``log_scalars`` for what earlier starts may not have recorded."""
        for record in read_records(self._run.folder):
            split, step, _ = record.pop("split"), int(record.pop("step")), record.pop("time", None)
            if step <= self._run.steps_done:
                values = {key: value for key, value in record.items() if value is not None}
                yield {"split": split, "step": step, "values": values}

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train`` or ``valid`` by name."""
        self._once(split, step, lambda: self._tracker.log_scalars(split, step, values))

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation."""
        self._once("samples", step, lambda: self._tracker.log_samples(step, samples))

    def log_attention(self, step: int, maps: Mapping[str, str], caption: str) -> None:
        """Logs attention weights of one sample, as a PNG in base64 for each kind of attention."""
        images = {k: Image.open(io.BytesIO(base64.b64decode(png))) for k, png in maps.items()}
        self._once("attention", step, lambda: self._tracker.log_attention(step, images, caption))

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs the scores of the test set by name; a later end of the run replaces them."""
        self._tracker.log_final_scores(step, scores)

    def close(self, finished: bool) -> None:
        """Flushes and closes the tracker."""
        self._tracker.close(finished)

    def _once(self, key: str, step: int, call: Callable[[], None]) -> None:
        if step > self._recorded.get(key, -1):
            call()
            self._recorded[key] = step
            self._save()

    def _save(self) -> None:
        write_text(self._path, json.dumps({"entry": self._entry, "recorded": self._recorded}))


class Channel:
    """Calls from training on standard input, messages to it on standard output.

    Packages that use these streams get an empty one, and standard error.
    """

    def __init__(self) -> None:
        self.calls = os.fdopen(os.dup(0), "rb")
        self._messages = os.fdopen(os.dup(1), "wb")
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(2, 1)
        os.close(empty)

    def send(self, **message: str) -> None:
        """Sends a ``note`` or an ``error``."""
        with suppress(OSError):  # training was killed
            self._messages.write(json.dumps(message).encode() + b"\n")
            self._messages.flush()

    @contextmanager
    def limited(self, seconds: float, what: str) -> Iterator[None]:
        """Ends the process if the context takes longer than this."""
        timer = self.exit_after(seconds, what)
        try:
            yield
        finally:
            timer.cancel()

    def exit_after(self, seconds: float, what: str) -> threading.Timer:
        """Ends the process after a time, unless it has ended by then."""

        def end() -> None:
            self.send(error=f"{what} took more than {seconds:.0f} s")
            os._exit(1)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer


def main() -> None:
    """Makes the calls that are read from standard input, until its end."""
    (name,) = sys.argv[1:]
    channel = Channel()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of the input ends the process
    try:
        _record(name, channel)
    except Exception as error:
        traceback.print_exc()
        channel.send(error=" ".join(str(error).split())[:_MAX_ERROR] or type(error).__name__)
        sys.exit(1)
    finally:
        channel.exit_after(_EXIT_SECONDS, "its exit")  # packages have exit handlers of their own


def _record(name: str, channel: Channel) -> None:
    opening = json.loads(channel.calls.readline())["arguments"]
    seconds = opening.pop("call_seconds")
    folder = Path(opening.pop("folder"))
    # The worker of a training that was just killed may not have finished.
    with FileLock(folder / run_layout.TRACKERS / f".{name}.lock", timeout=seconds):
        with channel.limited(seconds, "its start"):
            recorder = Recorder(name, folder, **opening)
        channel.send(note=f"{name}: {recorder.location}")
        for arguments in recorder.missing():
            with channel.limited(seconds, "log_scalars"):
                recorder.log_scalars(**arguments)
        finished = False
        for line in channel.calls:
            if not line.endswith(b"\n"):
                break  # training was killed
            call = json.loads(line)
            if call["method"] == "close":
                finished = call["arguments"]["finished"]
                break
            with channel.limited(seconds, call["method"]):
                getattr(recorder, call["method"])(**call["arguments"])
        with channel.limited(seconds, "its end"):
            recorder.close(finished)


def _read_state(path: Path) -> tuple[str, dict[str, int]]:
    """Entry and last recorded steps of earlier starts; new ones if there are none, or damaged."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return str(state["entry"]), {key: int(step) for key, step in state["recorded"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return secrets.token_hex(4), {}


if __name__ == "__main__":
    main()
