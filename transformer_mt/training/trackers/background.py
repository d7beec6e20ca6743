"""A tracker in a process of its own, which can neither delay nor stop training."""

import base64
import io
import json
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from PIL.Image import Image
from tqdm import tqdm

from transformer_mt import run_layout
from transformer_mt.training.trackers.tracker import TrackedRun

_WORKER = "transformer_mt.training.trackers.worker"
_MAX_QUEUED = 1000
"""Maximum number of records that wait for the process."""
_CALL_SECONDS = 300.0
"""Maximum duration of one call of the tracker, such as its start."""
_CLOSE_SECONDS = 60.0
"""Maximum time to wait at the end for the rest to be recorded."""

log = logging.getLogger(__name__)


class BackgroundTracker:
    """Sends everything to ``worker.py`` in another process, where the tracker is.

    The trackers' packages take seconds to import, print to standard output, ask for passwords,
    keep global state, and wait for servers. In the other process none of this reaches training.
    The process ends with its input, so that what was logged before a kill of training is recorded.
    """

    def __init__(self, name: str, run: TrackedRun):
        self._failure: str | None = None
        folder = run.folder / run_layout.TRACKERS
        folder.mkdir(parents=True, exist_ok=True)
        self._log_path = folder / f"{name}.log"
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
        with self._log_path.open("ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _WORKER, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # away from Ctrl-C and from the terminal
            )
        self._queue: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._write, daemon=True).start()
        self._send(
            "open",
            folder=str(run.folder),
            settings=run.settings,
            steps_done=run.steps_done,
            call_seconds=_CALL_SECONDS,
        )

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Logs metrics of ``train`` or ``valid`` by name, except those that are not finite."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._send("log_scalars", split=split, step=step, values=finite)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Logs sample translations of a validation."""
        self._send("log_samples", step=step, samples=[list(sample) for sample in samples])

    def log_attention(self, step: int, maps: Mapping[str, Image], caption: str) -> None:
        """Logs attention weights of one sample, as a picture for each kind of attention."""
        encoded = {kind: _to_text(image) for kind, image in maps.items()}
        self._send("log_attention", step=step, maps=encoded, caption=caption)

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs the scores of the test set by name."""
        self._send("log_final_scores", step=step, scores=dict(scores))

    def close(self, finished: bool) -> None:
        """Waits, for a limited time, until everything is recorded.

        Raises:
            RuntimeError: The process has failed, or did not end in time.
        """
        try:
            self._send("close", finished=finished)
            with suppress(queue.Full):
                self._queue.put_nowait(None)
            self._process.wait(_CLOSE_SECONDS)
            self._reader.join(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._failure = f"it did not finish within {_CLOSE_SECONDS:.0f} s"
        finally:
            self._kill()
        if self._failure:
            raise RuntimeError(self._failure)

    def _send(self, method: str, **arguments: Any) -> None:
        """Queues a call; never waits."""
        line = json.dumps({"method": method, "arguments": arguments}) + "\n"
        try:
            if self._failure is None:
                self._queue.put_nowait(line.encode())
        except queue.Full:
            self._failure = f"it has not accepted the last {_MAX_QUEUED} records"
        if self._failure is not None:
            self._kill()
            raise RuntimeError(self._failure)

    def _write(self) -> None:
        """Writes queued calls to the process; in a thread, because a full pipe blocks."""
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:  # _read learns why it has ended
            while (line := self._queue.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _read(self) -> None:
        """Logs the messages of the process until it ends, and keeps its error."""
        assert self._process.stdout is not None
        error = None
        for line in self._process.stdout:
            message = json.loads(line)
            error = message.get("error", error)
            if "note" in message:
                with tqdm.external_write_mode(file=sys.stderr):
                    log.info("%s", message["note"])
        status = self._process.wait()
        if error or status:
            error = error or f"its process ended with status {status}"
            self._failure = f"{error} (details: {self._log_path})"

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _to_text(image: Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()
