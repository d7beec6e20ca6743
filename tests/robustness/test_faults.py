"""Faults of training runs: kills, signals, full disks, a second start.

Real processes of mt-train train a tiny model on a synthetic corpus; they are forked from a server
that has imported PyTorch, which saves seconds. After a fault the same command is run again until
the run is finished. Its folder must then equal the folder of an uninterrupted run bit for bit: the
averaged weights, every checkpoint, the scores, and each record of metrics.jsonl except for times;
no file is missing or left over. In between, the run must resume from the newest checkpoint; a
command that cannot resume must say why in one line and change nothing.

The moments are random: ``MT_FAULTS_SEED`` repeats their choice, or makes another one. With
``MT_FAULTS_TIMES=5`` there are five times as many, about as many as in scripts/bench/RESULTS.md.
(``unit/training/test_trainer_resuming.py`` kills a run at each access to the disk;
``unit/test_checkpoint.py`` damages checkpoints.)
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.tiny_trainer import records
from support.training_runs import (
    TIMEOUT,
    Running,
    arguments,
    checkpoints,
    one_line_error,
    workers,
    write_corpus,
)

SEED = os.environ.get("MT_FAULTS_SEED", "1")
TIMES = int(os.environ.get("MT_FAULTS_TIMES", "1"))
SETTINGS = (
    "train.precision=fp32",
    "train.max_steps=40",
    "train.checkpoint_every=5",
    "train.validate_every=10",
    "train.log_every=2",  # every other checkpoint lies between two records
    "train.average_checkpoints=3",
)
RECIPES: list[tuple[str, ...]] = [
    (),
    ("train.clip_norm=1",),
    ("train.final=best", "train.best_by=nll", "train.patience=2", "train.validate_every=4"),
    ("augment=standard", "data.weights=[1.5]", "data.shard_pairs=16", "train.batch_tokens=60"),
]
"""Overrides on how a run ends, where validations in the third do not coincide with checkpoints; in
the last, the corpus has noise, a weight and several shards."""
TWO_RANKS = ("distributed.processes=2",)


def newest(run_dir: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    return max((int(path.name.removeprefix("step_")) for path in checkpoints(run_dir)), default=0)


def wait_for_checkpoint(running: Running, run_dir: Path, step: int = 1) -> None:
    """Waits for a checkpoint of this step or a later one."""
    running.wait_for(lambda: newest(run_dir) >= step)


def contents(run_dir: Path) -> dict[str, Any]:
    """The files of a run without times, by name."""
    found: dict[str, Any] = {}
    for path in run_dir.rglob("*"):
        # A conversion is named by a checksum of config.yaml, too.
        name = re.sub("(?<=float32)-[0-9a-f]{16}", "", path.relative_to(run_dir).as_posix())
        if path.is_dir() or name.startswith(("tensorboard/", ".mt-train.lock", "train.log")):
            continue
        if name == "metrics.jsonl":
            found[name] = records(run_dir)
        elif path.name in ("run.json", "README.md"):  # with times: only check that it exists
            found[name] = None
        elif path.name == "state.json":
            found[name] = json.loads(path.read_text(encoding="utf-8"))
            del found[name]["seconds"], found[name]["sha256"][path.name]
        elif name == "config.yaml":  # contains the folder's name
            found[name] = path.read_text(encoding="utf-8").replace(str(run_dir), "RUN")
        else:
            found[name] = path.read_bytes()
    return found


class Lab:
    """Starts runs on one small corpus, and keeps the results of uninterrupted runs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.running: list[Running] = []
        self._folders = 0
        self._expected: dict[tuple[str, ...], tuple[dict[str, Any], float]] = {}
        self._half: Path | None = None
        write_corpus(folder, pairs=300, valid=24, test=12)

    def new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"run{self._folders:04d}"

    def start(self, run_dir: Path, *more: str) -> Running:
        """Starts mt-train with the shared settings and ``more``."""
        argv = arguments(self.folder, run_dir, *SETTINGS, *more)
        output = self.folder / f"output{len(self.running):05d}"
        self.running.append(Running("train", argv, output, None, None, OMP_NUM_THREADS="1"))
        self.running[-1].wait_for(self.running[-1].begins)
        return self.running[-1]

    def expected(self, *more: str) -> tuple[dict[str, Any], float]:
        """The contents of the folder of an uninterrupted run, and the seconds that it took."""
        if more not in self._expected:
            run_dir, since = self.new_folder(), time.monotonic()
            self.start(run_dir, *more).done()
            self._expected[more] = contents(run_dir), time.monotonic() - since
        return self._expected[more]

    def half(self) -> Path:
        """A copy of a run that was killed half-way, with at least three checkpoints."""
        if self._half is None:
            self._half = self.new_folder()
            running = self.start(self._half)
            wait_for_checkpoint(running, self._half, 25)
            running.send(signal.SIGKILL)
            running.wait()
        return Path(shutil.copytree(self._half, self.new_folder()))

    def finish(self, run_dir: Path, *more: str) -> None:
        """Runs the command to its end, which must be that of an uninterrupted run."""
        before = newest(run_dir)
        _, err = self.start(run_dir, *more).done()
        assert_resumed(err, before)
        self.assert_as_expected(run_dir, *more)
        shutil.rmtree(run_dir)

    def assert_as_expected(self, run_dir: Path, *more: str) -> None:
        found, (expected, _) = contents(run_dir), self.expected(*more)
        assert found.keys() == expected.keys()
        assert [name for name in found if found[name] != expected[name]] == []


def assert_resumed(err: str, before: int) -> None:
    """A run, if it came to training, resumed from the newest checkpoint, or started with none."""
    assert "damaged" not in err
    found = re.search(r"resuming after update (\d+)", err)
    assert found is not None or before == 0 or "training:" not in err
    assert found is None or int(found[1]) == before


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("faults"))
    yield made
    for running in made.running:
        running.process.kill()


@pytest.mark.parametrize(
    ("recipes", "numbers", "hits"),
    [
        (RECIPES[-1:], [signal.SIGKILL], 3),
        pytest.param(RECIPES, [signal.SIGKILL], 40, marks=pytest.mark.slow),
        pytest.param(RECIPES, [signal.SIGTERM, signal.SIGINT], 4, marks=pytest.mark.slow),
    ],
)
def test_runs_are_hit_by_signals_at_any_moment(
    recipes: Sequence[tuple[str, ...]], numbers: Sequence[signal.Signals], hits: int, lab: Lab
) -> None:
    rng, left = random.Random(f"{SEED} {numbers}"), hits * TIMES
    while left > 0:
        recipe = rng.choice(recipes)
        (_, seconds), run_dir = lab.expected(*recipe), lab.new_folder()
        print("run", *recipe)
        while left > 0:
            before, number = newest(run_dir), rng.choice(numbers)
            running = lab.start(run_dir, *recipe)
            time.sleep(rng.uniform(0, seconds))
            running.send(number)
            sent = time.monotonic()
            status, _, err = running.wait()
            print(f"{number.name} to a run that began after {before}: status {status}")
            if status == 0:  # before the signal
                break
            left -= 1
            # Before training handles them, signals end the process: the same status to a shell.
            assert status in ([-number] if number == signal.SIGKILL else [128 + number, -number])
            assert_resumed(err, before)
            assert "Traceback" not in err
            assert number == signal.SIGKILL or time.monotonic() - sent < 10
        lab.finish(run_dir, *recipe)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system in memory, mounted while the context lasts; skips the test if it cannot be."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_is_one_line_and_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * 2**20) as disk:
        run_dir = Path(shutil.copytree(lab.half(), disk / "run"))
        before = {path: contents(path) for path in checkpoints(run_dir)}
        room = random.Random(SEED).randrange(40_000)  # less than a checkpoint takes
        state = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(state.f_bavail * state.f_frsize - room))
        assert "No space left" in one_line_error(lab.start(run_dir).wait())
        # A checkpoint written before the disk was full may have replaced the oldest.
        assert {*checkpoints(run_dir)} >= {*list(before)[-2:]}
        kept = [path for path in before if path.exists()]
        assert [path for path in kept if contents(path) != before[path]] == []
        (disk / "ballast").unlink()
        lab.finish(run_dir)


def test_a_second_start_while_a_run_trains_is_refused(lab: Lab) -> None:
    run_dir = lab.new_folder()
    first = lab.start(run_dir)
    wait_for_checkpoint(first, run_dir)
    first.send(signal.SIGSTOP)  # it must not finish before the second starts
    assert "another mt-train" in one_line_error(lab.start(run_dir).wait())
    first.send(signal.SIGCONT)
    first.done()
    lab.assert_as_expected(run_dir)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "number", "status"),
    [("launcher", signal.SIGKILL, -signal.SIGKILL), ("worker", signal.SIGKILL, 1)],
)
def test_a_lost_process_of_several_ends_all(
    victim: str, number: signal.Signals, status: int, lab: Lab
) -> None:
    """Torchrun ends the other worker; without the launcher, both stop with a checkpoint."""
    rng = random.Random(f"{SEED} {victim} {number}")
    for _ in range(TIMES):
        run_dir = lab.new_folder()
        running = lab.start(run_dir, *TWO_RANKS)
        wait_for_checkpoint(running, run_dir)
        time.sleep(rng.uniform(0, 0.1))
        found = workers(running.pid)
        assert found
        os.kill(rng.choice(found) if victim == "worker" else running.pid, number)
        assert running.wait()[0] == status
        deadline = time.monotonic() + TIMEOUT
        while alive := [pid for pid in found if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < deadline, f"workers {alive} are still running"
            time.sleep(0.1)
        lab.finish(run_dir, *TWO_RANKS)
