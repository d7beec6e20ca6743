"""Faults of training runs: kills, signals, damaged files, full disks, a second start.

Real processes of mt-train train a tiny model on a synthetic corpus. After a fault the same command
is run again until the run is finished. The run survives if its folder then equals the folder of an
uninterrupted run bit for bit: the averaged weights, every checkpoint, the scores, and each record
of metrics.jsonl except for times; no file is missing or left over. In between, the run
must resume from the newest checkpoint; a command that cannot resume must say why in one line and
change nothing.

The moments are random. ``unit/training/test_trainer.py`` kills a run at each access to the disk.
"""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lab import RECIPES, Ended, Lab, Running, newest
from support.training_runs import TIMEOUT, checkpoints, workers
from volume import full, mounted

SIGNAL_LIMIT = 10.0
"""Maximum seconds from a signal to the end of a run, on a busy machine."""


@dataclass
class Try:
    """One run, the faults that hit it, and the problems found."""

    run_dir: Path
    hits: int = 0
    """Number of faults."""
    problems: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """The actions, in order."""


Fault = Callable[[Lab, random.Random, int], Try]
"""Does one run, whose number of hits is at least one unless it finishes before; the last argument
is the number of hits that are still wanted."""


def signalled_run(lab: Lab, rng: random.Random, left: int, *, numbers: Sequence[int]) -> Try:
    """A run that is started, hit and started again until it finishes."""
    recipe = rng.choice(RECIPES)
    _, seconds = lab.expected(*recipe)
    attempt = Try(lab.new_folder(), history=[" ".join(recipe) or "the plain recipe"])
    while attempt.hits < left:
        running, number = lab.start(attempt.run_dir, *recipe), rng.choice(numbers)
        time.sleep(rng.uniform(0, seconds))
        running.send(number)
        ended = running.end()
        if ended.status == 0:  # before the signal
            break
        name = signal.Signals(number).name
        attempt.history.append(f"{name} to a run that began after {running.newest}")
        attempt.hits += 1
        attempt.problems += [f"{name}: {word}" for word in signal_problems(running, ended, number)]
    attempt.problems += lab.finish(attempt.run_dir, *recipe)
    return attempt


def signal_problems(running: Running, ended: Ended, number: int) -> list[str]:
    """Problems with how a signal ended a process, and with the files that it left."""
    # Before training handles them, signals end the process themselves: the same status to a shell.
    words = ended.expect(*([-number] if number == signal.SIGKILL else [128 + number, -number]))
    words += running.resumed(ended)
    if "Traceback" in ended.err:
        words.append(f"a traceback: {ended.err[-1500:]!r}")
    if number != signal.SIGKILL and ended.seconds > SIGNAL_LIMIT:
        words.append(f"took {ended.seconds:.0f} s to exit")
    return words


FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def damages(lab: Lab, rng: random.Random, left: int) -> Try:
    """A file of the newest checkpoint is cut short, or one of its bits flipped."""
    run_dir = lab.half()
    before, last = checkpoints(run_dir)[-2:]
    path = last / FILES[left % 3]
    content = bytearray(path.read_bytes())
    position, bit = rng.randrange(len(content)), rng.randrange(8)
    if is_cut := left // 3 % 2 == 0:
        del content[position:]
    else:
        content[position] ^= 1 << bit
    path.write_bytes(content)
    attempt = Try(run_dir, 1, history=[f"{path}: {is_cut=} at byte {position}, {bit=}"])
    ended = lab.start(run_dir).end()
    attempt.problems += ended.expect(0)
    if not re.search(rf"{last.name} cannot be used", ended.err):
        attempt.problems.append(f"{last.name} is not named")
    if f"resuming after update {int(before.name.removeprefix('step_'))}\n" not in ended.err:
        attempt.problems.append(f"did not resume from {before.name}")
    attempt.problems += lab.differences(run_dir)
    return attempt


def disk_full(lab: Lab, rng: random.Random, left: int) -> Try:
    with mounted(lab.folder / "disk") as volume:
        run_dir = Path(shutil.copytree(lab.half(), volume / "run"))
        room = rng.randrange(sum(map(len, checkpoint_bytes(checkpoints(run_dir)[-1]).values())))
        attempt = Try(run_dir, 1, history=[f"{room:,} bytes free"])
        with full(volume, room):
            attempt.problems += check_refusal(lab, run_dir, "No space left")
        attempt.problems += lab.finish(run_dir)
    return attempt


def check_refusal(lab: Lab, run_dir: Path, reason: str) -> list[str]:
    """Problems with a run that cannot write: it must print one line and keep its checkpoints."""
    before = {path: checkpoint_bytes(path) for path in checkpoints(run_dir)}
    words = lab.start(run_dir).end().refusal(reason)
    # A checkpoint written before the disk was full may have replaced the oldest.
    lost = [path.name for path in list(before)[-2:] if not path.exists()]
    words += [f"{name} was deleted" for name in lost]
    words += [
        f"{path.name} was changed"
        for path, content in before.items()
        if path.exists() and checkpoint_bytes(path) != content
    ]
    return words


def checkpoint_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def double_start(lab: Lab, rng: random.Random, left: int) -> Try:
    """A second start while the first run trains."""
    run_dir = lab.new_folder()
    attempt = Try(run_dir, 1)
    first = lab.start(run_dir)
    first.reaches(lambda: newest(run_dir))
    first.send(signal.SIGSTOP)  # it must not finish before the second starts
    attempt.problems += lab.start(run_dir).end().refusal(r"another mt-train")
    first.send(signal.SIGCONT)
    attempt.problems += first.end().expect(0)
    attempt.problems += lab.differences(run_dir)
    return attempt


TWO = ("distributed.processes=2", "distributed.timeout_minutes=0.2")


def lost_process(lab: Lab, rng: random.Random, left: int, *, worker: bool) -> Try:
    """Of two ranks, a worker is killed or hangs, or the launcher is killed.

    Torchrun ends the other worker; without the launcher, both stop with a checkpoint.
    """
    lab.expected(*TWO)
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    running = lab.start(run_dir, *TWO)
    running.reaches(lambda: newest(run_dir))
    time.sleep(rng.uniform(0, 0.1))
    if not (found := workers(running.pid)):
        return attempt
    number = (signal.SIGKILL, signal.SIGSTOP)[left % 2 if worker else 0]
    os.kill(rng.choice(found) if worker else running.pid, number)
    attempt.hits += 1
    attempt.history.append(f"{number.name}, {worker=}")
    attempt.problems += running.end().expect(1 if worker else -number)
    deadline = time.monotonic() + TIMEOUT
    while alive := [pid for pid in found if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            attempt.problems.append(f"workers {alive} are still running")
            break
        time.sleep(0.1)
    attempt.problems += lab.finish(run_dir, *TWO)
    return attempt


FAULTS: dict[str, Fault] = {
    "kill -9": partial(signalled_run, numbers=[signal.SIGKILL]),
    "SIGTERM, SIGINT": partial(signalled_run, numbers=[signal.SIGTERM, signal.SIGINT]),
    "lost launcher": partial(lost_process, worker=False),
    "lost rank": partial(lost_process, worker=True),
    "damaged checkpoint": damages,
    "disk full": disk_full,
    "double start": double_start,
}
"""Faults by name."""
