"""Kills, stops and damages training runs many times, and checks that nothing is lost.

    python tests/robustness/faults.py                   every fault, about 15 minutes on two cores
    python tests/robustness/faults.py --kills 10                              a quick look

Real processes of mt-train train a tiny model on a synthetic corpus. After a fault the same command
is run again until the run is finished. The run survives if its folder then equals the folder of an
uninterrupted run bit for bit: the averaged weights, every checkpoint, the scores, and each record
of metrics.jsonl except for times; no file is missing or left over. In between, the run
must resume from the newest checkpoint; a command that cannot resume must say why in one line and
change nothing.

Nine of ten starts are forked from a process that has imported PyTorch; the tenth is a real
mt-train. The moments are random; --seed repeats their choice. Exit status 1: something was lost.
What, and how to repeat it, is on standard error, and the folders are kept.
"""

import argparse
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
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
from support.training_runs import checkpoints
from tabulate import tabulate
from volume import MountError, full, mounted, read_only

REAL_SHARE = 0.1
SIGNAL_LIMIT = 10.0
"""Maximum seconds from a signal to the end of a run, on a busy machine."""
MISSES = 5
"""Runs in succession that finish before they can be hit, after which that is an error."""


@dataclass
class Try:
    """One run, the faults that hit it, and the problems found."""

    run_dir: Path
    hits: Counter[str] = field(default_factory=Counter)
    """Number of faults, by where they hit."""
    problems: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """The actions, in order."""
    slowest: float = 0.0
    """Maximum seconds from a signal to the end of the process."""


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


def phase(running: Running) -> str:
    """The phase in which a process ended, judged by the files that it left."""
    run_dir = running.run_dir
    if (run_dir / "test.json").exists():
        return "the very end"
    if not running.has_begun():
        return "start-up"
    if running.is_trained():
        return "test scores" if "the model is in" in running.log() else "averaging"
    doing = {"checkpoint": is_writing(run_dir), "validation": running.is_validating()}
    return " + ".join(name for name, is_so in doing.items() if is_so) or "updates"


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
    where, name = phase(running), signal.Signals(number).name
    kind = "real" if running.real else "forked"
    attempt.history.append(f"{name} to a {kind} process in {where}, after {running.newest}")
    attempt.hits[where] += 1
    attempt.problems += [
        f"{name} in {where}: {word}" for word in signal_problems(running, ended, number)
    ]
    if number != signal.SIGKILL:
        attempt.slowest = max(attempt.slowest, ended.seconds)
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
    kind = name.partition(".")[0]
    attempt = Try(run_dir, Counter([f"{kind} {way}"]), history=[damage(last / name, way, rng)])
    ended = lab.start(run_dir).end()
    attempt.problems += ended.expect(0)
    if not re.search(rf"{last.name} cannot be used", ended.err):
        attempt.problems.append(f"{last.name} is not named")
    if f"resuming after update {int(before.name.removeprefix('step_'))}\n" not in ended.err:
        attempt.problems.append(f"did not resume from {before.name}")
    attempt.problems += differences(contents(run_dir), lab.expected())
    return attempt


def all_damaged(lab: Lab, rng: random.Random, left: int) -> Try:
    run_dir = lab.half()
    attempt = Try(run_dir, Counter(["refused"]))
    for path in checkpoints(run_dir):
        attempt.history.append(damage(path / rng.choice(FILES[:2]), "cut", rng))
    found = contents(run_dir)
    attempt.problems += lab.start(run_dir).end().refusal("checkpoint")
    attempt.problems += differences(contents(run_dir), found)
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
    attempt.hits = Counter({"mid-write": attempt.hits.total()})
    attempt.problems += lab.finish(run_dir)
    return attempt


def is_temporary(path: Path, run_dir: Path) -> bool:
    parts = path.relative_to(run_dir).parts
    return path.is_file() and parts[0] != ".lock" and any(part.startswith(".") for part in parts)


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


def cut_files(lab: Lab, rng: random.Random, left: int) -> Try:
    run_dir = lab.half()
    name = ("config.yaml", "metrics.jsonl")[left % 2]
    path = run_dir / name
    written = path.read_bytes()
    attempt = Try(run_dir, Counter([name]), history=[damage(path, "cut", rng)])
    if name == "config.yaml":
        ended = lab.start(run_dir).end()
        if ended.status:  # with the file restored, nothing is lost
            attempt.problems += ended.refusal(re.escape(str(run_dir)))
            path.write_bytes(written)
        attempt.problems += lab.finish(run_dir)
    else:  # only the truncated records are missing
        attempt.problems += lab.start(run_dir).end().expect(0)
        found, expected = contents(run_dir), lab.expected()
        kept = [record for record in expected[name] if record in found[name]]
        drawn = {"curves.png": found.get("curves.png")}  # from the records that are left
        attempt.problems += differences(found, {**expected, name: kept, **drawn})
    return attempt


# Disks.


def disk_full(lab: Lab, rng: random.Random, left: int) -> Try:
    with mounted(lab.folder / "disk") as volume:
        run_dir = Path(shutil.copytree(lab.half(), volume / "run"))
        room = rng.randrange(sum(map(len, checkpoint_bytes(checkpoints(run_dir)[-1]).values())))
        attempt = Try(run_dir, Counter(["full"]), history=[f"{room:,} bytes free"])
        with full(volume, room):
            attempt.problems += check_refusal(lab, run_dir, "No space left")
        attempt.problems += lab.finish(run_dir)
    return attempt


def file_limit(lab: Lab, rng: random.Random, left: int) -> Try:
    """A limit on the file size (ulimit -f): like a full disk, but needs no permission to mount."""
    run_dir = lab.half()
    largest = max(map(len, checkpoint_bytes(checkpoints(run_dir)[-1]).values()))
    limit = rng.randrange(largest // 8, largest)
    attempt = Try(run_dir, Counter(["limited"]), history=[f"file size limit {limit:,} bytes"])
    attempt.problems += check_refusal(lab, run_dir, "File too large", limit)
    attempt.problems += lab.finish(run_dir)
    return attempt


def locked(lab: Lab, rng: random.Random, left: int) -> Try:
    with mounted(lab.folder / "locked") as volume:
        attempt = Try(volume / "run", Counter([("started", "new")[left % 2]]))
        if left % 2 == 0:
            shutil.copytree(lab.half(), attempt.run_dir)
        with read_only(volume):
            reason = "Read-only file system|Permission denied"
            attempt.problems += check_refusal(lab, attempt.run_dir, reason)
        attempt.problems += lab.finish(attempt.run_dir)
    return attempt


def check_refusal(lab: Lab, run_dir: Path, reason: str, limit: int | None = None) -> list[str]:
    """Problems with a run that cannot write: it must print one line and keep its checkpoints."""
    before = {path: checkpoint_bytes(path) for path in checkpoints(run_dir)}
    words = lab.start(run_dir, file_limit=limit).end().refusal(reason)
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
    attempt = Try(run_dir, Counter(["refused"]))
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
    """The launcher is killed; its workers must end, too."""
    lab.expected(*TWO)
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    running = lab.start(run_dir, *TWO, real=True)
    target = rng.choice(("updates", "checkpoint", "validation"))
    if aim(running, target, rng):
        found = workers(running.pid)
        attempt.problems += [] if found else ["no workers were found"]
        running.send(signal.SIGKILL)
        attempt.hits[phase(running)] += 1
        attempt.problems += signal_problems(running, running.end(), signal.SIGKILL)
        attempt.problems += lab.finish(run_dir, *TWO, real=True)
        alive = [pid for pid in found if Path(f"/proc/{pid}").exists()]
        attempt.problems += [f"worker {pid} is still running" for pid in alive]
    return attempt


def lost_rank(lab: Lab, rng: random.Random, left: int) -> Try:
    """A worker is killed or hangs; the command itself must resume from the last checkpoint."""
    lab.expected(*TWO)
    run_dir = lab.new_folder()
    attempt = Try(run_dir)
    running = lab.start(run_dir, *TWO, real=True)
    target = rng.choice(("checkpoint", "validation"))
    if aim(running, target, rng) and (found := workers(running.pid)):
        chosen = rng.randrange(len(found))
        number, message = (
            (signal.SIGKILL, f"worker {chosen} (process {found[chosen]}) was killed by SIGKILL"),
            (signal.SIGSTOP, "lost the connection to another rank: "),
        )[left % 2]
        os.kill(found[chosen], number)
        attempt.hits[phase(running)] += 1
        attempt.history.append(f"{number.name} to worker {chosen} of {len(found)}")
        ended = running.end()
        if message not in ended.err or "Traceback" in ended.err:
            attempt.problems.append(f"reported as {ended.err[-1500:]!r}")
    attempt.problems += running.end().expect(0)
    attempt.problems += differences(contents(run_dir), lab.expected(*TWO))
    return attempt


# Faults and results.

FAULTS: dict[str, tuple[Fault, int, str]] = {
    # Name: (fault, default number of hits, expected outcome).
    "kill -9": (kills, 200, "identical"),
    "SIGTERM, SIGINT": (stops, 40, "exit 143, 130; identical"),
    "two signals": (partial(stops, twice=True), 20, "exit 143, 130; identical"),
    "lost launcher": (lost_launcher, 5, "workers end; identical"),
    "lost rank": (lost_rank, 5, "restarted; identical"),
    "damaged checkpoint": (damages, 24, "the one before it; identical"),
    "all damaged": (all_damaged, 4, "one line, exit 1"),
    "machine off": (machine_off, 24, "identical"),
    "files cut short": (cut_files, 12, "one line, or identical"),
    "disk full": (disk_full, 10, "one line, exit 1; then identical"),
    "file size limit": (file_limit, 10, "one line, exit 1; then identical"),
    "read-only folder": (locked, 4, "one line, exit 1; then identical"),
    "double start": (double_start, 6, "one line, exit 1; first: same bits"),
}


@dataclass
class Row:
    """Results of one fault."""

    fault: str
    outcome: str
    hits: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0
    skipped: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # A killed process does not clean up; the fork server would warn about that when it ends.
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ["OMP_NUM_THREADS"] = "1"
    scratch = Path(tempfile.mkdtemp(prefix="bench-faults-", dir=options.folder))
    lab = Lab(scratch)
    rows = []
    try:
        say(f"seed {options.seed}; runs in {scratch}")
        forked = lab.finish(lab.new_folder())
        if forked:  # without faults, runs must be equal
            raise SystemExit(f"faults.py: error: uninterrupted runs differ: {'; '.join(forked)}")
        for name in options.only or FAULTS:
            tries = math.ceil(FAULTS[name][1] * options.kills / FAULTS["kill -9"][1])
            rows.append(run_fault(lab, name, tries, options.seed))
    finally:
        lab.close()
    lost = any(row.problems for row in rows)
    if not lost:
        shutil.rmtree(scratch, ignore_errors=True)
    print(report(rows))
    return int(lost)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    help_kills = "number of kill -9 (default: 200); the other faults in proportion"
    add("--kills", type=int, default=FAULTS["kill -9"][1], help=help_kills)
    add("--only", action="append", choices=FAULTS, help="run only this fault; can be repeated")
    add("--seed", type=int, default=random.randrange(10**6), help="seed of the random moments")
    add("--folder", type=Path, help="folder for the runs (default: a temporary folder)")
    return parser.parse_args(arguments)


def run_fault(lab: Lab, name: str, tries: int, seed: int) -> Row:
    """Repeats a fault until it has hit ``tries`` times."""
    fault, _, outcome = FAULTS[name]
    row, rng = Row(name, outcome), random.Random(f"{seed} {name}")
    missed = 0
    while row.hits.total() < tries and missed < MISSES:
        try:
            attempt = fault(lab, rng, tries - row.hits.total())
        except MountError as error:
            row.skipped = str(error)
            break
        row.hits += attempt.hits
        row.slowest = max(row.slowest, attempt.slowest)
        missed = 0 if attempt.hits.total() else missed + 1
        if attempt.problems:
            row.lost += attempt.hits.total() or 1
            row.problems += attempt.problems
            say(f"{name}, seed {seed}, in {attempt.run_dir}:")
            for line in [*attempt.history, *(f"LOST: {word}" for word in attempt.problems)]:
                say(f"    {line}")
        else:
            shutil.rmtree(attempt.run_dir, ignore_errors=True)
    if missed == MISSES:
        row.problems.append(f"{name}: the runs finish before they can be hit")
    say(f"{name}: {row.hits.total() - row.lost} of {row.hits.total()} survived")
    return row


def report(rows: Sequence[Row]) -> str:
    """A Markdown table of the results."""
    head = ["fault", "tried", "passed", "result", "where it hit"]
    lines = []
    for row in rows:
        where = ", ".join(f"{kind} {count}" for kind, count in row.hits.most_common())
        outcome = f"{row.outcome}, within {row.slowest:.1f} s" if row.slowest else row.outcome
        tried = row.hits.total()
        where = f"not tried: {row.skipped}" if row.skipped else where
        lines.append([row.fault, tried, tried - row.lost, outcome, where])
    return tabulate(lines, head, tablefmt="pipe")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
