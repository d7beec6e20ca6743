"""Faults of training runs: kills, signals, damaged files, full disks, a second start.

Real processes of mt-train train a tiny model on a synthetic corpus. After a fault the same command
is run again until the run is finished. The run survives if its folder then equals the folder of an
uninterrupted run bit for bit: the averaged weights, every checkpoint, the scores, and each record
of metrics.jsonl except for times; no file is missing or left over. In between, the run
must resume from the newest checkpoint; a command that cannot resume must say why in one line and
change nothing.

Nine of ten starts are forked from a process that has imported PyTorch; the tenth is a real
mt-train.
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

from lab import (
    CHECKPOINT_EVERY,
    RECIPES,
    Ended,
    Lab,
    Running,
    contents,
    differences,
    is_writing,
    newest,
    progress,
    records,
)
from support.launched_runs import workers
from support.training_runs import TIMEOUT, checkpoints
from volume import full, mounted

REAL_SHARE = 0.1
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


# Moments.

AIMS: dict[str, tuple[Callable[[Running], bool], float]] = {
    # Phase: condition to wait for, maximum delay after it in seconds.
    "start-up": (lambda running: True, 0.6),
    "updates": (lambda running: running.has_begun(), 0.4),
    "checkpoint": (lambda running: is_writing(running.run_dir), 0.02),
    "validation": (lambda running: running.is_validating(), 0.05),
    "averaging": (lambda running: running.is_trained(), 0.1),
    "test scores": (lambda running: "the model is in" in running.log(), 0.05),
}


def aim(running: Running, target: str, rng: random.Random) -> bool:
    """Waits for a random moment of a phase; False if the process ends before."""
    reached, max_delay = AIMS[target]
    late = target in ("start-up", "averaging", "test scores")
    after = 0 if late else running.newest + CHECKPOINT_EVERY * rng.choice((0, 0, 1, 2))
    delay = rng.uniform(0, max_delay)
    if not running.reaches(lambda: progress(running.run_dir) >= after - 1 and reached(running)):
        return False
    time.sleep(delay)
    return running.process.is_alive()


def choose_phases(rng: random.Random) -> list[str]:
    """A random sequence of phases in which to hit one run."""
    early = rng.choices(list(AIMS)[:4], weights=(1, 3, 3, 4), k=rng.randint(3, 8))
    return early + [target for target in ("averaging", "test scores") if rng.random() < 0.6]


# Kills and signals at any moment.


def signalled_run(
    lab: Lab, rng: random.Random, left: int, *, numbers: Sequence[int], twice: bool = False
) -> Try:
    """A run that is hit several times before it finishes."""
    recipe = rng.choice(RECIPES)
    lab.expected(*recipe)
    attempt = Try(lab.new_folder(), history=[" ".join(recipe) or "the plain recipe"])
    for target in choose_phases(rng)[:left]:
        number = rng.choice(numbers)
        if not start_and_signal(attempt, lab, target, rng, number, recipe, twice=twice):
            break
    attempt.problems += lab.finish(attempt.run_dir, *recipe, real=rng.random() < REAL_SHARE)
    return attempt


kills = partial(signalled_run, numbers=[signal.SIGKILL])
stops = partial(signalled_run, numbers=[signal.SIGTERM, signal.SIGINT])


def start_and_signal(
    attempt: Try,
    lab: Lab,
    target: str,
    rng: random.Random,
    number: int,
    recipe: Sequence[str] = (),
    *,
    twice: bool = False,
) -> bool:
    """Starts a run and ends it with a signal; False if it finishes before."""
    running = lab.start(attempt.run_dir, *recipe, real=rng.random() < REAL_SHARE)
    if aim(running, target, rng):
        running.send(number)
        if twice:
            time.sleep(rng.uniform(0, 0.02))
            running.send(number)
    ended = running.end()
    if ended.status == 0:
        return False
    where, name = target, signal.Signals(number).name
    kind = "real" if running.real else "forked"
    attempt.history.append(f"{name} to a {kind} process in {where}, after {running.newest}")
    attempt.hits += 1
    attempt.problems += [
        f"{name} in {where}: {word}" for word in signal_problems(running, ended, number)
    ]
    return True


def signal_problems(running: Running, ended: Ended, number: int) -> list[str]:
    """Problems with how a signal ended a process, and with the files that it left."""
    # While Python starts, and after a second signal, the signal itself ends the process, which is
    # the same status to a shell.
    words = ended.expect(*([-number] if number == signal.SIGKILL else [128 + number, -number]))
    words += running.resumed(ended)
    # Python itself prints one if it is interrupted during an import.
    if "Traceback" in ended.err and (running.has_begun() or not running.real):
        words.append(f"a traceback: {ended.err[-1500:]!r}")
    if number != signal.SIGKILL and ended.seconds > SIGNAL_LIMIT:
        words.append(f"took {ended.seconds:.0f} s to exit")
    return words


# Damaged files.


def damage(path: Path, way: str, rng: random.Random) -> str:
    """Truncates a file or flips one bit of it; returns a description."""
    content = bytearray(path.read_bytes())
    position = rng.randrange(len(content))
    if way == "cut":
        del content[position:]
    else:
        bit = rng.randrange(8)
        content[position] ^= 1 << bit
        way += f" bit {bit}"
    path.write_bytes(content)
    return f"{path.parent.name}/{path.name} {way} at byte {position}"


FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def damages(lab: Lab, rng: random.Random, left: int) -> Try:
    run_dir = lab.half()
    before, last = checkpoints(run_dir)[-2:]
    name, way = FILES[left % 3], ("cut", "flipped")[left // 3 % 2]
    attempt = Try(run_dir, 1, history=[damage(last / name, way, rng)])
    ended = lab.start(run_dir).end()
    attempt.problems += ended.expect(0)
    if not re.search(rf"{last.name} cannot be used", ended.err):
        attempt.problems.append(f"{last.name} is not named")
    if f"resuming after update {int(before.name.removeprefix('step_'))}\n" not in ended.err:
        attempt.problems.append(f"did not resume from {before.name}")
    attempt.problems += differences(contents(run_dir), lab.expected())
    return attempt


def machine_off(lab: Lab, rng: random.Random, left: int) -> Try:
    """A power failure: data not yet on disk (temporary files, ends of logs) is lost too."""
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    for _ in range(2):
        if not start_and_signal(attempt, lab, "checkpoint", rng, signal.SIGKILL):
            break
        lost = [path for path in run_dir.rglob("*") if is_temporary(path, run_dir)]
        lost += [run_dir / "train.log", *(run_dir / "tensorboard").glob("*")]
        for path in lost:
            if path.exists() and path.stat().st_size:
                attempt.history.append(damage(path, "cut", rng))
        cut_records(run_dir, rng, attempt)
    attempt.problems += lab.finish(run_dir)
    return attempt


def is_temporary(path: Path, run_dir: Path) -> bool:
    parts = path.relative_to(run_dir).parts
    return (
        path.is_file()
        and parts[0] != ".mt-train.lock"
        and any(part.startswith(".") for part in parts)
    )


def cut_records(run_dir: Path, rng: random.Random, attempt: Try) -> None:
    """Truncates the records of metrics.jsonl after the newest checkpoint."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    needed = sum(record["step"] <= newest(run_dir) for record in records(run_dir))
    tail = b"".join(lines[needed:])
    keep = rng.randint(0, len(tail))
    path.write_bytes(b"".join(lines[:needed]) + tail[:keep])
    attempt.history.append(f"metrics.jsonl cut by {len(tail) - keep} bytes")


# Disks.


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


# Two runs in one folder.


def double_start(lab: Lab, rng: random.Random, left: int) -> Try:
    """A second start at a random moment of the first run, or at the same time."""
    run_dir = lab.new_folder()
    attempt = Try(run_dir, 1)
    first = lab.start(run_dir)
    if left % 3 == 1:
        second = lab.start(run_dir)
        ended = sorted([first.end(), second.end()], key=lambda one: -one.status)
    else:
        target = rng.choice(("updates", "checkpoint", "validation"))
        aim(first, target, rng)
        first.send(signal.SIGSTOP)  # it must not finish before the second starts
        ended = [lab.start(run_dir, real=rng.random() < REAL_SHARE).end()]
        first.send(signal.SIGCONT)
        ended.append(first.end())
    attempt.problems += ended[0].refusal(r"another mt-train")
    attempt.problems += ended[1].expect(0)
    attempt.problems += differences(contents(run_dir), lab.expected())
    return attempt


# Several ranks.

TWO = ("distributed.processes=2", "distributed.timeout_minutes=0.2")


def lost_launcher(lab: Lab, rng: random.Random, left: int) -> Try:
    """The launcher is killed; its workers must stop with a checkpoint, too."""
    lab.expected(*TWO)
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    running = lab.start(run_dir, *TWO, real=True)
    target = rng.choice(("updates", "checkpoint", "validation"))
    if aim(running, target, rng):
        found = workers(running.pid)
        attempt.problems += [] if found else ["no workers were found"]
        running.send(signal.SIGKILL)
        attempt.hits += 1
        attempt.problems += signal_problems(running, running.end(), signal.SIGKILL)
        deadline = time.monotonic() + TIMEOUT
        while alive := [pid for pid in found if Path(f"/proc/{pid}").exists()]:
            if time.monotonic() > deadline:
                attempt.problems.append(f"workers {alive} are still running")
                break
            time.sleep(0.1)
        attempt.problems += lab.finish(run_dir, *TWO, real=True)
    return attempt


def lost_rank(lab: Lab, rng: random.Random, left: int) -> Try:
    """A worker is killed or hangs; torchrun ends all, and the same command must resume."""
    lab.expected(*TWO)
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    running = lab.start(run_dir, *TWO, real=True)
    target = rng.choice(("checkpoint", "validation"))
    if aim(running, target, rng) and (found := workers(running.pid)):
        chosen = rng.randrange(len(found))
        number = (signal.SIGKILL, signal.SIGSTOP)[left % 2]
        os.kill(found[chosen], number)
        attempt.hits += 1
        attempt.history.append(f"{number.name} to worker {chosen} of {len(found)}")
        attempt.problems += running.end().expect(1)
        attempt.problems += lab.finish(run_dir, *TWO, real=True)
    return attempt


FAULTS: dict[str, Fault] = {
    "kill -9": kills,
    "SIGTERM, SIGINT": stops,
    "two signals": partial(stops, twice=True),
    "lost launcher": lost_launcher,
    "lost rank": lost_rank,
    "damaged checkpoint": damages,
    "machine off": machine_off,
    "disk full": disk_full,
    "double start": double_start,
}
"""Faults by name."""
