"""Starts runs of mt-train, observes them, and compares their folders with an uninterrupted run.

A run is forked from a server that has imported PyTorch, which saves seconds: it is a process of its
own, which is really killed. Nothing here depends on the internals of the trainer: only the run
folder is inspected, as a user would.
"""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import training_runs
from support.training_runs import TIMEOUT, arguments, checkpoints, write_corpus

from transformer_mt.training.metrics_log import TIME_KEYS, read_records

STEPS = 40
SETTINGS = (
    "train.precision=fp32",
    f"train.max_steps={STEPS}",
    "train.checkpoint_every=5",
    "train.validate_every=10",
    "train.log_every=2",  # every other checkpoint lies between two records
    "train.average_checkpoints=3",
)
RECIPES: list[tuple[str, ...]] = [
    (),
    ("train.clip_norm=1",),
    ("train.final=best", "train.best_by=nll", "train.patience=2", "train.validate_every=4"),
    ("data.shard_pairs=16", "train.batch_tokens=60"),
]
"""Overrides on how a run ends, where validations in the third do not coincide with checkpoints; in
the last, the corpus has several shards."""


def newest(run_dir: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    return max((int(path.name.removeprefix("step_")) for path in checkpoints(run_dir)), default=0)


def contents(run_dir: Path) -> dict[str, Any]:
    """The files of a run without times, by name."""
    found: dict[str, Any] = {}
    for path in run_dir.rglob("*"):
        name = path.relative_to(run_dir).as_posix()
        if path.is_dir() or name.startswith(("tensorboard/", ".mt-train.lock", "train.log")):
            continue
        if name == "metrics.jsonl":
            found[name] = [
                {key: value for key, value in record.items() if key not in TIME_KEYS}
                for record in read_records(run_dir)
            ]
        elif name in ("run.json", "README.md"):  # with times: only check that it exists
            found[name] = None
        elif path.name == "state.json":
            found[name] = json.loads(path.read_text(encoding="utf-8"))
            del found[name]["seconds"], found[name]["sha256"][path.name]
        elif name == "config.yaml":  # contains the folder's name
            found[name] = path.read_text(encoding="utf-8").replace(str(run_dir), "RUN")
        else:
            found[name] = path.read_bytes()
    return found


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Descriptions of the differences."""
    words = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    words += [f"{name} is left over" for name in sorted(found.keys() - expected.keys())]
    common = sorted(expected.keys() & found.keys())
    return words + [f"{name} differs" for name in common if found[name] != expected[name]]


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int
    """Exit status; if a signal killed the process, minus its number."""
    out: str
    err: str
    seconds: float
    """Seconds from the last signal, or else the start, to the end."""

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return (self.err.splitlines() or ["no output"])[-1]

    def expect(self, *statuses: int) -> list[str]:
        """Problems if the exit status is not one of these."""
        if self.status in statuses:
            return []
        return [f"exit status {self.status}, instead of {statuses[0]}: {self.last}"]

    def refusal(self, pattern: str) -> list[str]:
        """Problems with an error exit, which must be status 1 and one line that matches."""
        words = self.expect(1)
        errors = [line for line in self.err.splitlines() if "error" in line.lower()]
        if errors != [self.last] or "Traceback" in self.err or self.out:
            words.append(f"not a single line: …{self.err[-300:]!r}")
        elif not re.search(pattern, self.last):
            words.append(f"unexpected message: {self.last}")
        return words


class Running(training_runs.Running):
    """A running mt-train."""

    def __init__(self, argv: list[str], run_dir: Path, output: Path):
        self.newest = newest(run_dir)
        self._since = time.monotonic()
        super().__init__("train", argv, output, OMP_NUM_THREADS="1")
        self.reaches(self.begins)

    def send(self, number: int) -> None:
        self._since = time.monotonic()
        super().send(number)

    def end(self) -> Ended:
        """Waits for the end; kills the process after ``TIMEOUT`` seconds."""
        try:
            status, out, err = self.wait()
        except AssertionError as late:
            status, out, err = 124, "", str(late)
        assert status is not None
        return Ended(status, out, err, time.monotonic() - self._since)

    def reaches(self, condition: Callable[[], object]) -> bool:
        """Waits until the condition holds; False if the process ends before."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if not self.process.is_alive() or time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True

    def resumed(self, ended: Ended) -> list[str]:
        """Problems with where it resumed, which must be the newest checkpoint."""
        words = [line for line in ended.err.splitlines() if "damaged" in line]
        found = re.search(r"resuming after update ([\d,]+)", ended.err)
        if found and int(found[1].replace(",", "")) != self.newest:
            words.append(f"{found[0]} instead of {self.newest}")
        if self.newest and not found and "training:" in ended.err:
            words.append(f"started from scratch instead of after update {self.newest}")
        return words


class Lab:
    """Starts runs on one small corpus, and caches the results of uninterrupted runs.

    Args:
        folder: An empty folder for all files.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._folders = self._starts = 0
        self._expected: dict[tuple[str, ...], tuple[dict[str, Any], float]] = {}
        self._half: Path | None = None
        self._running: list[Running] = []
        write_corpus(folder, pairs=300, valid=24, test=12)

    def new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"run{self._folders:04d}"

    def start(self, run_dir: Path, *more: str) -> Running:
        """Starts mt-train with the shared settings and ``more``."""
        self._starts += 1
        argv = arguments(self.folder, run_dir, *SETTINGS, *more)
        running = Running(argv, run_dir, self.folder / f"output{self._starts:05d}")
        self._running = [running for running in self._running if running.process.is_alive()]
        self._running.append(running)
        return running

    def expected(self, *more: str) -> tuple[dict[str, Any], float]:
        """The contents of the folder of an uninterrupted run, and the seconds that it took."""
        if more not in self._expected:
            run_dir = self.new_folder()
            ended = self.start(run_dir, *more).end()
            if ended.status:
                raise RuntimeError(f"mt-train fails without a fault: {ended.err[-2000:]}")
            self._expected[more] = contents(run_dir), ended.seconds
        return self._expected[more]

    def half(self) -> Path:
        """A copy of a run that was killed half-way, with at least three checkpoints."""
        if self._half is None:
            self._half = self.new_folder()
            running = self.start(self._half)
            running.reaches(lambda: newest(self._half or Path()) >= STEPS * 5 // 8)
            running.send(signal.SIGKILL)
            running.end()
        return Path(shutil.copytree(self._half, self.new_folder()))

    def differences(self, run_dir: Path, *more: str) -> list[str]:
        """The differences of a finished run from an uninterrupted one."""
        return differences(contents(run_dir), self.expected(*more)[0])

    def finish(self, run_dir: Path, *more: str) -> list[str]:
        """Runs the command again to the end; returns the differences from an uninterrupted run."""
        running = self.start(run_dir, *more)
        ended = running.end()
        words = [*ended.expect(0), *running.resumed(ended)]
        return words or self.differences(run_dir, *more)

    def close(self) -> None:
        """Kills all runs that are still going."""
        for running in self._running:
            running.process.kill()
