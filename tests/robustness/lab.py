"""Starts runs of mt-train, observes them, and compares their folders with an uninterrupted run.

A run is forked from a server that has imported PyTorch, which saves seconds, or it is a real
mt-train. Both are separate processes that are really killed. Nothing here depends on the internals
of the trainer: only the run folder is inspected, as a user would.
"""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import training_runs
from support.launched_runs import MT_TRAIN
from support.training_runs import TIMEOUT, arguments, checkpoints, write_corpus

from transformer_mt.training.metrics_log import TIME_KEYS

STEPS, CHECKPOINT_EVERY = 40, 5
SETTINGS = (
    "train.precision=fp32",
    f"train.max_steps={STEPS}",
    f"train.checkpoint_every={CHECKPOINT_EVERY}",
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


# The folder of a run.


def records(run_dir: Path) -> list[dict[str, Any]]:
    """The complete records of metrics.jsonl."""
    try:
        lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # truncated by the kill
            continue
    return found


def progress(run_dir: Path) -> int:
    """The last update recorded in metrics.jsonl, or 0."""
    return max((record["step"] for record in records(run_dir)), default=0)


def newest(run_dir: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    return max((int(path.name.removeprefix("step_")) for path in checkpoints(run_dir)), default=0)


def is_writing(run_dir: Path) -> bool:
    """Whether a checkpoint is being written."""
    folder = run_dir / "checkpoints"
    return folder.is_dir() and any(path.name.startswith(".") for path in folder.iterdir())


def validations(run_dir: Path) -> list[int]:
    """The updates with a recorded validation."""
    return [record["step"] for record in records(run_dir) if record["split"] == "valid"]


def contents(run_dir: Path) -> dict[str, Any]:
    """The files of a run without times, by name."""
    found: dict[str, Any] = {}
    for path in run_dir.rglob("*"):
        name = path.relative_to(run_dir).as_posix()
        if (
            path.is_dir()
            or name.startswith("tensorboard/")
            or name in (".mt-train.lock", "train.log")
        ):
            continue
        if name == "metrics.jsonl":
            found[name] = [
                {key: value for key, value in record.items() if key not in TIME_KEYS}
                for record in records(run_dir)
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


# Processes.


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
    """A running mt-train.

    Args:
        argv: Command-line arguments.
        run_dir: The run folder.
        output: Folder for stdout and stderr.
        validations: The updates after which it validates, if known.
        real: Start the console script in a new session; otherwise fork.
    """

    def __init__(
        self, argv: list[str], run_dir: Path, output: Path, validations: Sequence[int], real: bool
    ):
        self.run_dir, self.real = run_dir, real
        self._validations = validations
        log = run_dir / "train.log"
        self._log_before = log.stat().st_size if log.exists() else 0
        self._before = _stamps(run_dir)
        self.newest = newest(run_dir)
        self._since = time.monotonic()
        super().__init__([MT_TRAIN] if real else "train", argv, output, OMP_NUM_THREADS="1")
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

    def log(self) -> str:
        """The lines that this process has written to train.log."""
        try:
            with (self.run_dir / "train.log").open("rb") as file:
                file.seek(self._log_before)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def has_begun(self) -> bool:
        """Whether it has written to the run folder, apart from the log."""
        return _stamps(self.run_dir) != self._before

    def is_validating(self) -> bool:
        """Whether the update before a validation is recorded and the validation is not yet."""
        found = records(self.run_dir)
        last = found[-1] if found else {"split": "", "step": 0}
        return last["split"] == "train" and last["step"] in self._validations

    def is_trained(self) -> bool:
        """Whether the last validation is recorded."""
        return validations(self.run_dir)[-1:] == list(self._validations[-1:])

    def reaches(self, condition: Callable[[], bool]) -> bool:
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


def _stamps(run_dir: Path) -> list[int]:
    paths = (run_dir / name for name in ("config.yaml", "metrics.jsonl", "tensorboard"))
    return [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]


# The laboratory.


class Lab:
    """Starts runs on one small corpus, and caches the results of uninterrupted runs.

    Args:
        folder: An empty folder for all files.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._folders = self._starts = 0
        self._expected: dict[tuple[str, ...], dict[str, Any]] = {}
        self._validations: dict[tuple[str, ...], list[int]] = {}
        self._half: Path | None = None
        self._running: list[Running] = []
        write_corpus(folder, pairs=300, valid=24, test=12)

    def new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"run{self._folders:04d}"

    def start(self, run_dir: Path, *more: str, real: bool = False) -> Running:
        """Starts mt-train with the shared settings and ``more``."""
        self._starts += 1
        output = self.folder / f"output{self._starts:05d}"
        argv = arguments(self.folder, run_dir, *SETTINGS, *more)
        running = Running(argv, run_dir, output, self._validations.get(more, []), real)
        self._running = [running for running in self._running if running.process.is_alive()]
        self._running.append(running)
        return running

    def expected(self, *more: str) -> dict[str, Any]:
        """The contents of the folder of an uninterrupted run."""
        if more not in self._expected:
            run_dir = self.new_folder()
            ended = self.start(run_dir, *more, real=more not in RECIPES[1:]).end()
            if ended.status:
                raise RuntimeError(f"mt-train fails without a fault: {ended.err[-2000:]}")
            self._expected[more] = contents(run_dir)
            self._validations[more] = validations(run_dir)
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

    def finish(self, run_dir: Path, *more: str, real: bool = False) -> list[str]:
        """Runs the command again to the end; returns the differences from an uninterrupted run."""
        running = self.start(run_dir, *more, real=real)
        ended = running.end()
        words = [*ended.expect(0), *running.resumed(ended)]
        return words or differences(contents(run_dir), self.expected(*more))

    def close(self) -> None:
        """Kills all runs that are still going."""
        for running in self._running:
            running.process.kill()
