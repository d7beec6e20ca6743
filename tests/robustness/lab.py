"""Starts runs of mt-train, observes them, and compares their folders with an uninterrupted run.

A run is forked from a server that has imported PyTorch, which saves seconds, or it is a real
mt-train. Both are separate processes that are really killed. Nothing here depends on the internals
of the trainer: only the run folder is inspected, as a user would.
"""

import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from transformer_mt.training.metrics_log import TIME_KEYS

TIMEOUT = 120.0
"""Seconds after which a process counts as hanging."""
STEPS, CHECKPOINT_EVERY, VALIDATE_EVERY, LOG_EVERY = 40, 5, 10, 2
SETTINGS = [
    "data=files",
    "data.src_lang=en",
    "data.tgt_lang=de",
    "data.cleaning.max_tokens=64",
    "tokenizer.vocab_size=290",
    "model=tiny",
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "schedule.warmup_steps=20",
    "train.precision=fp32",
    "train.device=cpu",
    "train.batch_tokens=200",
    "train.max_tokens_per_device=120",  # two or three micro-batches per update
    f"train.max_steps={STEPS}",
    f"train.checkpoint_every={CHECKPOINT_EVERY}",
    f"train.validate_every={VALIDATE_EVERY}",
    f"train.log_every={LOG_EVERY}",  # every other checkpoint lies between two records
    "train.average_checkpoints=3",
    "decode.max_extra_tokens=5",
]
RECIPES: list[tuple[str, ...]] = [
    (),
    ("train.clip_norm=1",),
    ("train.final=best", "train.best_by=nll", "train.patience=2", "train.validate_every=4"),
    ("data.window_pairs=16", "train.batch_tokens=60"),
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


def checkpoints(run_dir: Path) -> list[Path]:
    """The checkpoints, oldest first, including damaged ones."""
    return sorted((run_dir / "checkpoints").glob("step_*"))


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


def problems_of(checkpoint: Path) -> list[str]:
    """Problems of a checkpoint, found without the code of the package."""
    try:
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        for name, checksum in state["sha256"].items():
            if name == "state.json":  # without this entry
                continue
            if hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() != checksum:
                return [f"{checkpoint.name}/{name} does not match its checksum"]
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, "numpy") as file:
                for key in file.keys():  # noqa: SIM118 (not a dict)
                    file.get_tensor(key)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        return [f"{checkpoint.name} does not load: {error!r}"]
    return []


def contents(run_dir: Path) -> dict[str, Any]:
    """The files of a run without times, by name."""
    found: dict[str, Any] = {}
    for path in run_dir.rglob("*"):
        name = path.relative_to(run_dir).as_posix()
        if path.is_dir() or name.startswith("tensorboard/") or name in (".lock", "train.log"):
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
    for name in sorted(expected.keys() & found.keys()):
        if found[name] == expected[name]:
            continue
        words.append(f"{name} differs")
        if name == "metrics.jsonl":
            words[-1] += f": {first_difference(found[name], expected[name])}"
    return words


def first_difference(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    """Describes the first difference between the records of two runs."""
    for got, want in zip(found, expected, strict=False):
        if got != want:
            keys = [key for key in {**want, **got} if got.get(key) != want.get(key)]
            parts = [f"{key} {got.get(key)} instead of {want.get(key)}" for key in keys]
            return f"after update {want['step']} ({want['split']}) " + ", ".join(parts)
    return f"{len(found)} records instead of {len(expected)}"


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


class Running:
    """A running mt-train.

    Args:
        argv: Command-line arguments.
        run_dir: The run folder.
        output: Folder for stdout and stderr.
        validations: The updates after which it validates, if known.
        real: Start the console script in a new session; otherwise fork.
        file_limit: Maximum size of a file in bytes.
    """

    def __init__(
        self,
        argv: Sequence[str],
        run_dir: Path,
        output: Path,
        validations: Sequence[int] = (),
        *,
        real: bool = False,
        file_limit: int | None = None,
    ):
        self.run_dir, self.real = run_dir, real
        self._validations = validations
        self._output = output
        self._log_before = _size(run_dir / "train.log")
        self._before = _stamps(run_dir)
        self.newest = newest(run_dir)
        output.mkdir()
        for name in ("out", "err"):
            (output / name).touch()
        self._since = time.monotonic()
        self._popen: subprocess.Popen[bytes] | None = None
        if real:
            command = [str(Path(sys.executable).with_name("mt-train")), *argv]
            with (output / "out").open("wb") as out, (output / "err").open("wb") as err:
                self._popen = subprocess.Popen(
                    command,
                    stdout=out,
                    stderr=err,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    start_new_session=True,
                )
            self.pid = self._popen.pid
        else:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(
                [
                    "transformer_mt.cli.main",
                    "transformer_mt.jobs.train",
                    "torch.utils.tensorboard",
                    "torch._dynamo",
                    "sacremoses",
                ]
            )
            self._process = context.Process(target=_serve, args=(argv, output, file_limit))
            self._process.start()
            assert self._process.pid is not None
            self.pid = self._process.pid
            # Before that, a signal would hit the code of the server.
            self.wait_for((output / "begins").exists)

    def is_alive(self) -> bool:
        return self._process.is_alive() if self._popen is None else self._popen.poll() is None

    def send(self, number: int) -> None:
        """Sends a signal; no error if the process has ended."""
        self._since = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self) -> Ended:
        """Waits for the end; kills the process after ``TIMEOUT`` seconds."""
        late = False
        if self._popen is None:
            self._process.join(TIMEOUT)
            if late := self._process.is_alive():
                self._process.kill()
                self._process.join()
            status = self._process.exitcode
        else:
            try:
                self._popen.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                late = True
                self._popen.kill()
            status = self._popen.wait()
        seconds = time.monotonic() - self._since
        out, err = ((self._output / name).read_text(errors="replace") for name in ("out", "err"))
        if late:
            return Ended(124, out, f"{err}\ntimeout: killed after {seconds:.0f} s", seconds)
        assert status is not None
        return Ended(status, out, err, seconds)

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

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Waits until the condition holds; False if the process ends before."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if not self.is_alive() or time.monotonic() > deadline:
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

    def workers(self) -> list[int]:
        """Process ids of the workers that this launcher has started."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        return found


def _serve(argv: Sequence[str], output: Path, file_limit: int | None) -> None:
    """Runs mt-train in a process that has imported its modules."""
    import torch

    from transformer_mt.cli.entry_points import train

    torch.set_num_threads(1)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_APPEND), number)
    if file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.argv = ["mt-train", *argv]
    (output / "begins").touch()
    train()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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
        rng = random.Random(0)
        for name, count in (("train", 300), ("valid", 24), ("test", 12)):
            lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(count)]
            text = "".join(f"{line}\t{line.upper()}\n" for line in lines)
            (folder / f"{name}.tsv").write_text(text)

    def new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"run{self._folders:04d}"

    def start(
        self, run_dir: Path, *more: str, real: bool = False, file_limit: int | None = None
    ) -> Running:
        """Starts mt-train with the shared settings and ``more``."""
        self._starts += 1
        data = [
            f"data.{part}=[{{tsv: {self.folder}/{part}.tsv}}]"
            for part in ("train", "valid", "test")
        ]
        where = [f"run_dir={run_dir}", f"cache_dir={self.folder}/cache"]
        output = self.folder / f"output{self._starts:05d}"
        argv = [*where, *SETTINGS, *data, *more]
        self._running = [running for running in self._running if running.is_alive()]
        steps = self._validations.get(more, [])
        running = Running(argv, run_dir, output, steps, real=real, file_limit=file_limit)
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
            running.wait_for(lambda: newest(self._half or Path()) >= STEPS * 5 // 8)
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
            if running.is_alive():
                running.send(signal.SIGKILL)
                running.end()
