"""Faults that happen to training runs, many times, and whether anything is lost by them.

    python scripts/bench_faults.py                   every fault, about 20 minutes on two cores
    python scripts/bench_faults.py --kills 10                              a quick look

Real processes of mt-train train a tiny model on a synthetic corpus. After a fault the same command
is said again, until the run is done. It has survived if its folder is then the folder of a run
that nothing happened to, bit for bit: the averaged weights, every checkpoint, the scores, and each
record of metrics.jsonl but for the time of day; no file is missing and none left over. Before that
the newest checkpoint must be whole and must be the one that is gone on from; a command that cannot
go on must say why in one line, and harm nothing.

Nine starts of ten are forked from a process that has imported PyTorch; the tenth is a real
mt-train. The moments are random: --seed repeats the choice of them. Exit status 1: something was
lost; what, and how to repeat it, is on standard error, and the folders are kept.
"""

import argparse
import json
import math
import os
import platform
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench_faults_lab import (
    CHECKPOINT_EVERY,
    RECIPES,
    Ended,
    Lab,
    Running,
    checkpoints,
    contents,
    differences,
    is_writing,
    newest,
    progress,
    records,
    whole,
)
from bench_faults_volume import NoVolumeError, Volume

WIDTH = 98
REAL_SHARE = 0.1
AT_ONCE = 10.0
"""Seconds in which a signal must have ended a run, on a machine that has other things to do."""


@dataclass
class Try:
    """Some faults in one run, and what came of them."""

    hits: Counter[str] = field(default_factory=Counter)
    """How often, by kind."""
    problems: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """What was done, in order."""
    slowest: float = 0.0
    """Seconds from a signal to the end of the process."""


Tries = Iterator[Try]
Fault = Callable[[Lab, random.Random, int], Tries]


# Moments.

AIMS: dict[str, tuple[Callable[[Running], bool], float]] = {
    # What to wait for, and the most seconds thereafter.
    "start-up": (lambda running: True, 0.6),
    "updates": (lambda running: running.has_begun(), 0.4),
    "checkpoint": (lambda running: is_writing(running.run_dir), 0.02),
    "validation": (lambda running: running.is_validating(), 0.05),
    "averaging": (lambda running: running.is_trained(), 0.1),
    "test scores": (lambda running: "the model is in" in running.log(), 0.05),
}


def phase(running: Running) -> str:
    """What a process that is no more was at work on, by what it left."""
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
    """Waits for a random moment of a phase; False if the process has ended before."""
    there, most = AIMS[target]
    late = target in ("start-up", "averaging", "test scores")
    after = 0 if late else running.newest + CHECKPOINT_EVERY * rng.choice((0, 0, 1, 2))
    delay = rng.uniform(0, most)
    if not running.wait_for(lambda: progress(running.run_dir) >= after - 1 and there(running)):
        return False
    time.sleep(delay)
    return running.is_alive()


def some_aims(rng: random.Random) -> list[str]:
    """Targets that one run can be hit at, one after the other."""
    early = rng.choices(list(AIMS)[:4], weights=(1, 3, 3, 4), k=rng.randint(3, 8))
    return early + [target for target in ("averaging", "test scores") if rng.random() < 0.6]


# One process, killed or stopped at any moment.


def kills(lab: Lab, rng: random.Random, tries: int) -> Tries:
    return lives(lab, rng, tries, (signal.SIGKILL,))


def stops(lab: Lab, rng: random.Random, tries: int) -> Tries:
    return lives(lab, rng, tries, (signal.SIGTERM, signal.SIGINT))


def second_signals(lab: Lab, rng: random.Random, tries: int) -> Tries:
    return lives(lab, rng, tries, (signal.SIGTERM, signal.SIGINT), twice=True)


def lives(
    lab: Lab, rng: random.Random, tries: int, numbers: Sequence[int], twice: bool = False
) -> Tries:
    """Runs that are hit several times on their way to the end."""
    missed = 0
    while tries > 0 and missed < 5:
        recipe = rng.choice(RECIPES)
        lab.expected(*recipe)
        attempt = Try(history=[" ".join(recipe) or "the plain recipe"])
        run_dir = lab.new_folder()
        for target in some_aims(rng)[:tries]:
            number = rng.choice(numbers)
            if not hit(attempt, lab, run_dir, target, rng, number, recipe, twice=twice):
                break
        attempt.problems += lab.finish(run_dir, *recipe, real=rng.random() < REAL_SHARE)
        clean(run_dir, attempt)
        tries -= attempt.hits.total()
        missed = 0 if attempt.hits else missed + 1
        yield attempt
    if missed:
        yield Try(problems=["the runs end before they can be hit"])


def hit(
    attempt: Try,
    lab: Lab,
    run_dir: Path,
    target: str,
    rng: random.Random,
    number: int,
    recipe: Sequence[str] = (),
    *,
    twice: bool = False,
) -> bool:
    """Starts a run and ends it by a signal; False if it came to its end before that."""
    running = lab.start(run_dir, *recipe, real=rng.random() < REAL_SHARE)
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
        f"{name} in {where}: {word}" for word in after_signal(running, ended, number)
    ]
    if number != signal.SIGKILL:
        attempt.slowest = max(attempt.slowest, ended.seconds)
    return True


def after_signal(running: Running, ended: Ended, number: int) -> list[str]:
    """What is wrong with how a signal ended a process, and with what it left."""
    # In Python's own start-up, and after a second signal, the signal itself ends the process;
    # to a shell that is the same status.
    words = ended.expect(*([-number] if number == signal.SIGKILL else [128 + number, -number]))
    words += running.resumed(ended)
    # Python itself says one when it is interrupted while it imports.
    if "Traceback" in ended.err and (running.has_begun() or not running.real):
        words.append(f"a traceback: {ended.err[-1500:]!r}")
    if number != signal.SIGKILL and ended.seconds > AT_ONCE:
        words.append(f"took {ended.seconds:.0f} s to leave")
    if found := checkpoints(running.run_dir):
        words += whole(found[-1])
    return words


def clean(run_dir: Path, attempt: Try) -> None:
    """Keeps the folder of what went wrong, for whoever looks into it."""
    if attempt.problems:
        attempt.history.append(f"kept in {run_dir}")
    else:
        shutil.rmtree(run_dir, ignore_errors=True)


# Files that are no longer what was written.


def spoil(path: Path, way: str, rng: random.Random) -> str:
    """Cuts a file short, or turns one bit of it; says which."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if way == "cut":
        del content[place:]
    else:
        bit = rng.randrange(8)
        content[place] ^= 1 << bit
        way += f" bit {bit}"
    path.write_bytes(content)
    return f"{path.parent.name}/{path.name} {way} at byte {place}"


FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def damages(lab: Lab, rng: random.Random, tries: int) -> Tries:
    for number in range(tries):
        run_dir = lab.half()
        before, last = checkpoints(run_dir)[-2:]
        name, way = FILES[number % 3], ("cut", "flipped")[number // 3 % 2]
        kind = name.partition(".")[0]
        attempt = Try(Counter([f"{kind} {way}"]), history=[spoil(last / name, way, rng)])
        ended = lab.start(run_dir).end()
        attempt.problems += ended.expect(0)
        if not re.search(rf"{last.name} cannot be used", ended.err):
            attempt.problems.append(f"{last.name} is not named")
        if f"resuming after update {int(before.name.removeprefix('step_'))}\n" not in ended.err:
            attempt.problems.append(f"not gone on from {before.name}")
        attempt.problems += differences(contents(run_dir), lab.expected())
        clean(run_dir, attempt)
        yield attempt


def all_damaged(lab: Lab, rng: random.Random, tries: int) -> Tries:
    for _ in range(tries):
        run_dir = lab.half()
        attempt = Try(Counter(["refused"]))
        for path in checkpoints(run_dir):
            attempt.history.append(spoil(path / rng.choice(FILES[:2]), "cut", rng))
        found = contents(run_dir)
        attempt.problems += lab.start(run_dir).end().refusal("checkpoint")
        attempt.problems += differences(contents(run_dir), found)
        clean(run_dir, attempt)
        yield attempt


def machine_off(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """What was not yet on the disk is lost as well: temporary files, the ends of logs."""
    for _ in range(tries):
        run_dir = lab.new_folder()
        attempt = Try()
        for _ in range(2):
            if not hit(attempt, lab, run_dir, "checkpoint", rng, signal.SIGKILL):
                break
            lost = [path for path in run_dir.rglob("*") if is_temporary(path, run_dir)]
            lost += [run_dir / "train.log", *(run_dir / "tensorboard").glob("*")]
            for path in lost:
                if path.exists() and path.stat().st_size:
                    attempt.history.append(spoil(path, "cut", rng))
            cut_records(run_dir, rng, attempt)
        attempt.hits = Counter({"mid-write": attempt.hits.total()})
        attempt.problems += lab.finish(run_dir)
        clean(run_dir, attempt)
        yield attempt


def is_temporary(path: Path, run_dir: Path) -> bool:
    parts = path.relative_to(run_dir).parts
    return path.is_file() and parts[0] != ".lock" and any(part.startswith(".") for part in parts)


def cut_records(run_dir: Path, rng: random.Random, attempt: Try) -> None:
    """Loses some of what metrics.jsonl says of updates after the newest checkpoint."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    needed = sum(record["step"] <= newest(run_dir) for record in records(run_dir))
    tail = b"".join(lines[needed:])
    keep = rng.randint(0, len(tail))
    path.write_bytes(b"".join(lines[:needed]) + tail[:keep])
    attempt.history.append(f"metrics.jsonl cut by {len(tail) - keep} bytes")


def cut_files(lab: Lab, rng: random.Random, tries: int) -> Tries:
    for number in range(tries):
        run_dir = lab.half()
        name = ("config.yaml", "metrics.jsonl")[number % 2]
        path = run_dir / name
        written = path.read_bytes()
        attempt = Try(Counter([name]), history=[spoil(path, "cut", rng)])
        if name == "config.yaml":
            ended = lab.start(run_dir).end()
            if ended.status:  # put back what was there, and nothing is lost
                attempt.problems += ended.refusal(re.escape(str(run_dir)))
                path.write_bytes(written)
            attempt.problems += lab.finish(run_dir)
        else:  # what was cut away is gone: all else is as it would have been
            attempt.problems += lab.start(run_dir).end().expect(0)
            found, expected = contents(run_dir), lab.expected()
            kept = [record for record in expected[name] if record in found[name]]
            attempt.problems += differences(found, {**expected, name: kept})
        clean(run_dir, attempt)
        yield attempt


# Disks.


def disk_full(lab: Lab, rng: random.Random, tries: int) -> Tries:
    with Volume(lab.folder / "disk") as volume:
        for _ in range(tries):
            run_dir = Path(shutil.copytree(lab.half(), volume.path / "run"))
            room = rng.randrange(size(checkpoints(run_dir)[-1]))
            volume.fill(room)
            attempt = Try(Counter(["full"]), history=[f"{room:,} bytes are left"])
            attempt.problems += refused_and_whole(lab, run_dir, "No space left")
            volume.free()
            attempt.problems += lab.finish(run_dir)
            shutil.rmtree(run_dir)
            yield attempt


def file_limit(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """A limit on the size of a file (ulimit -f), as full as a disk and possible anywhere."""
    for _ in range(tries):
        run_dir = lab.half()
        largest = max(path.stat().st_size for path in checkpoints(run_dir)[-1].iterdir())
        limit = rng.randrange(largest // 8, largest)
        attempt = Try(Counter(["limited"]), history=[f"files of {limit:,} bytes at most"])
        attempt.problems += refused_and_whole(lab, run_dir, "File too large", limit)
        attempt.problems += lab.finish(run_dir)
        clean(run_dir, attempt)
        yield attempt


def read_only(lab: Lab, rng: random.Random, tries: int) -> Tries:
    with Volume(lab.folder / "locked") as volume:
        for number in range(tries):
            run_dir = volume.path / "run"
            if number % 2 == 0:
                shutil.copytree(lab.half(), run_dir)
            attempt = Try(Counter([("begun", "new")[number % 2]]))
            with volume.read_only():
                reason = "Read-only file system|Permission denied"
                attempt.problems += refused_and_whole(lab, run_dir, reason)
            attempt.problems += lab.finish(run_dir)
            shutil.rmtree(run_dir)
            yield attempt


def refused_and_whole(lab: Lab, run_dir: Path, reason: str, limit: int | None = None) -> list[str]:
    """What is wrong with a run that cannot write: one line, and its checkpoints as they were."""
    before = {path: checkpoint_bytes(path) for path in checkpoints(run_dir)}
    words = lab.start(run_dir, file_limit=limit).end().refusal(reason)
    for path in checkpoints(run_dir):
        words += whole(path)
    # One that was written before the disk was full has put the oldest out.
    lost = [path.name for path in list(before)[-2:] if not path.exists()]
    words += [f"{name} is gone" for name in lost]
    words += [
        f"{path.name} was changed"
        for path, content in before.items()
        if path.exists() and checkpoint_bytes(path) != content
    ]
    return words


def checkpoint_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


# Two runs in one folder.


def double_start(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """A second start at a random moment of the first, or at the same moment."""
    for number in range(tries):
        run_dir = lab.new_folder()
        attempt = Try(Counter(["refused"]))
        first = lab.start(run_dir)
        if number % 3:
            target = rng.choice(("updates", "checkpoint", "validation"))
            aim(first, target, rng)
            first.send(signal.SIGSTOP)  # it must not end before the second asks
            ended = [lab.start(run_dir, real=rng.random() < REAL_SHARE).end()]
            first.send(signal.SIGCONT)
            ended.append(first.end())
        else:
            second = lab.start(run_dir)
            ended = sorted([first.end(), second.end()], key=lambda one: -one.status)
        attempt.problems += ended[0].refusal("another mt-train is using")
        attempt.problems += ended[1].expect(0)
        attempt.problems += differences(contents(run_dir), lab.expected())
        clean(run_dir, attempt)
        yield attempt


# Several ranks.

TWO = "distributed.processes=2"
CALM = [
    "model.dropout=0",  # what dropout draws depends on the number of ranks
    "schedule=inverse_sqrt",
    "schedule.peak_lr=5e-3",  # low enough that rounding stays rounding
]


def lost_launcher(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """The process that the user started is killed; its workers must not go on without it."""
    lab.expected(TWO)
    for _ in range(tries):
        run_dir = lab.new_folder()
        attempt = Try()
        running = lab.start(run_dir, TWO, real=True)
        target = rng.choice(("updates", "checkpoint", "validation"))
        if aim(running, target, rng):
            workers = running.workers()
            attempt.problems += [] if workers else ["no workers are found"]
            running.send(signal.SIGKILL)
            attempt.hits[phase(running)] += 1
            attempt.problems += after_signal(running, running.end(), signal.SIGKILL)
            attempt.problems += lab.finish(run_dir, TWO, real=True)
            left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
            attempt.problems += [f"worker {pid} lives on" for pid in left]
        clean(run_dir, attempt)
        yield attempt


def lost_rank(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """A worker is killed: the command itself goes on from the last checkpoint."""
    lab.expected(TWO)
    for _ in range(tries):
        run_dir = lab.new_folder()
        attempt = Try()
        running = lab.start(run_dir, TWO, real=True)
        target = rng.choice(("updates", "checkpoint", "validation"))
        if aim(running, target, rng) and (workers := running.workers()):
            chosen = rng.randrange(len(workers))
            os.kill(workers[chosen], signal.SIGKILL)
            attempt.hits[phase(running)] += 1
            attempt.history.append(f"worker {chosen} of {len(workers)} killed")
        attempt.problems += running.end().expect(0)
        attempt.problems += differences(contents(run_dir), lab.expected(TWO))
        clean(run_dir, attempt)
        yield attempt


def other_ranks(lab: Lab, rng: random.Random, tries: int) -> Tries:
    """One rank, then two, then one: the same batches, so the same curve to rounding."""
    for _ in range(tries):
        run_dir = lab.new_folder()
        attempt = Try()
        for ranks, until in ((1, 10), (2, 25)):
            more = [*CALM, f"distributed.processes={ranks}"]
            running = lab.start(run_dir, *more, real=ranks > 1)
            running.wait_for(partial(has_checkpoint, run_dir, until))
            number = rng.choice((signal.SIGKILL, signal.SIGTERM))
            running.send(number)
            attempt.hits[f"after {ranks} rank{'s' * (ranks > 1)}"] += 1
            attempt.problems += after_signal(running, running.end(), number)
        attempt.problems += lab.start(run_dir, *CALM).end().expect(0)
        curve, expected = (
            found["metrics.jsonl"] for found in (contents(run_dir), lab.expected(*CALM))
        )
        attempt.problems += unlike(curve, expected)
        clean(run_dir, attempt)
        yield attempt


def has_checkpoint(run_dir: Path, step: int) -> bool:
    return newest(run_dir) >= step


def unlike(curve: list[dict[str, float]], expected: list[dict[str, float]]) -> list[str]:
    """Where two curves differ by more than rounding."""
    keys = ("step", "split", "loss", "nll", "lr", "grad_norm", "tokens")
    if [r["step"] for r in curve] != [r["step"] for r in expected]:
        return [f"{len(curve)} records, not {len(expected)}, or of other updates"]
    return [
        f"{key} of update {want['step']} is {got.get(key)}, not {want[key]}"
        for got, want in zip(curve, expected, strict=True)
        for key in keys
        if key in want and not close(got.get(key), want[key])
    ]


def close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-4 * max(abs(one), abs(other))
    return one == other


# The table.

FAULTS: dict[str, tuple[Fault, int, str]] = {
    # What happens, how often, what must come of it.
    "kill -9": (kills, 200, "same bits"),
    "SIGTERM, SIGINT": (stops, 40, "exit 143, 130; same bits"),
    "two signals": (second_signals, 20, "exit 143, 130; same bits"),
    "lost launcher": (lost_launcher, 5, "workers end; same bits"),
    "lost rank": (lost_rank, 5, "restarted; same bits"),
    "other ranks": (other_ranks, 4, "same curve"),
    "damaged checkpoint": (damages, 24, "the one before it; same bits"),
    "all damaged": (all_damaged, 4, "one line, exit 1"),
    "machine off": (machine_off, 12, "same bits"),
    "files cut short": (cut_files, 12, "one line, or same bits"),
    "disk full": (disk_full, 10, "one line, exit 1; then same bits"),
    "file size limit": (file_limit, 10, "one line, exit 1; then same bits"),
    "read-only folder": (read_only, 4, "one line, exit 1; then same bits"),
    "double start": (double_start, 6, "one line, exit 1; first: same bits"),
}


@dataclass
class Row:
    """A fault, and all that came of it."""

    fault: str
    outcome: str
    hits: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0
    seconds: float = 0.0
    skipped: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # Who is killed cleans nothing up; the server that all are forked from would tell at its end.
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ["OMP_NUM_THREADS"] = "1"
    scratch = Path(tempfile.mkdtemp(prefix="bench-faults-", dir=options.folder))
    lab = Lab(scratch)
    rows = []
    try:
        say(f"seed {options.seed}; runs in {scratch}")
        forked = lab.finish(lab.new_folder())
        if forked:  # nothing could be compared
            raise SystemExit(f"bench_faults.py: error: two runs differ: {'; '.join(forked)}")
        for name in options.only or FAULTS:
            tries = math.ceil(FAULTS[name][1] * options.kills / FAULTS["kill -9"][1])
            rows.append(suffer(lab, name, tries, options.seed))
    finally:
        lab.close()
    lost = any(row.problems for row in rows)
    if not lost:
        shutil.rmtree(scratch, ignore_errors=True)
    print(report(rows))
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in rows], indent=2))
    return int(lost)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    help_kills = "how often kill -9 (default: 200); the other faults in proportion"
    add("--kills", type=int, default=FAULTS["kill -9"][1], help=help_kills)
    add("--only", action="append", choices=FAULTS, help="this fault; may be said again")
    add("--seed", type=int, default=random.randrange(10**6), help="of the moments")
    add("--folder", type=Path, help="where the runs are (default: a temporary folder)")
    add("--json", type=Path, help="file for every figure")
    return parser.parse_args(arguments)


def suffer(lab: Lab, name: str, tries: int, seed: int) -> Row:
    """A fault, as often as it is asked for."""
    fault, _, outcome = FAULTS[name]
    row = Row(name, outcome)
    begun = time.monotonic()
    try:
        for number, attempt in enumerate(fault(lab, random.Random(f"{seed} {name}"), tries)):
            row.hits += attempt.hits
            row.slowest = max(row.slowest, attempt.slowest)
            if attempt.problems:
                row.lost += attempt.hits.total() or 1
                row.problems += attempt.problems
                say(f"{name}, seed {seed}, try {number + 1}:")
                for line in [*attempt.history, *(f"LOST: {word}" for word in attempt.problems)]:
                    say(f"    {line}")
    except NoVolumeError as error:
        row.skipped = str(error)
    if not row.hits and not row.skipped:
        row.problems.append(f"{name} never came about")
    row.seconds = time.monotonic() - begun
    say(f"{name}: {row.hits.total() - row.lost} of {row.hits.total()} survived")
    return row


def report(rows: Sequence[Row]) -> str:
    """One table in Markdown."""
    table = [["fault", "tried", "survived", "what comes of it", "where", "min:s"], []]
    for row in rows:
        where = ", ".join(f"{kind} {count}" for kind, count in row.hits.most_common())
        outcome = row.outcome
        if row.slowest:
            outcome += f"; gone in {row.slowest:.1f} s or less"
        tried = row.hits.total()
        table.append(
            [
                row.fault,
                f"{tried}",
                f"{tried - row.lost}",
                outcome,
                f"not tried: {row.skipped}" if row.skipped else where,
                f"{row.seconds // 60:.0f}:{row.seconds % 60:02.0f}",
            ]
        )
    return "\n".join([heading(), "", aligned(table)])


def heading() -> str:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        cpu = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    command = textwrap.fill(f"$ {shlex.join(['python', *sys.argv])}", WIDTH)
    return f"{command}\n{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {cpu}"


def aligned(table: list[list[str]]) -> str:
    left = (0, 3, 4)
    widths = [max(len(row[i]) for row in table if row) for i in range(len(table[0]))]
    table[1] = [
        "-" * width if i in left else "-" * (width - 1) + ":" for i, width in enumerate(widths)
    ]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in table
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
