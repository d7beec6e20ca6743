"""A file translated in chunks that outlive an interruption, by one process or by several ranks.

Finished chunks lie in a folder beside the output, ``OUTPUT.parts``, until all are there; then they
become the output. The same command, given again after a crash, finds them and goes on. Which rank
takes a chunk is settled by who comes first, so fast ranks do not wait for slow ones.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from transformer_mt import files
from transformer_mt.data.text.lines import open_binary, raw_lines
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.jobs.aligned_file import AlignedFile
from transformer_mt.jobs.translate_stream import InputStats

CHUNK = {"cpu": 2048, "cuda": 16384}
"""Lines of a chunk: enough to fill batches with sentences of one length. An interruption loses at
most one chunk of each rank."""

_LOG_EVERY = 30.0
"""Seconds between two lines about the progress, where there is no terminal."""

_JOB, _LOCK = "job.json", ".lock"

Report = Callable[[str], None]
"""Says a line to the user."""
Answer = Callable[[list[bytes], int], tuple[bytes, InputStats]]
"""The output for some lines, the first of which has the number given."""


def translate_file(
    source: Path,
    target: Path,
    settings: dict[str, Any],
    answer: Answer,
    world: World,
    report: Report,
    beside: AlignedFile | None = None,
) -> InputStats:
    """Translates a file, or what an earlier run has left of it.

    Args:
        source: The input, plain or compressed.
        target: The output; it appears when it is whole.
        settings: JSON values that the output depends on: chunks made with others are not used.
        answer: Translates the lines of a chunk.
        world: The ranks that share the work; all see the same files.
        report: Lets rank 0 speak.
        beside: What ``answer`` reads in step with the input; it must be of as many lines.

    Returns:
        What was odd about the lines, on rank 0.

    Raises:
        InputError: The input is damaged or no match for what is read beside it, or another process
            is at work on the output.
    """
    parts = target.with_name(f"{target.name}.parts")
    lines = size = 0
    with _alone(parts) if world.is_main else nullcontext():
        if world.is_main:
            lines, checksum = _survey(source)
            if beside is not None:
                beside.check(lines)
            job = {**settings, "input": checksum, "lines": lines}
            size = _open(parts, job, _chunk_size(lines, world), report)
        lines, size = world.gather((lines, size))[0]
        with _Progress(parts, lines, size, report if world.is_main else None) as progress:
            for number, chunk in enumerate(_chunks(source, lines, size)):
                if _claim(parts, number):
                    text, odd = answer(chunk, number * size + 1)
                    header = json.dumps(asdict(odd)).encode()
                    with files.atomic(_part(parts, number)) as temporary:
                        temporary.write_bytes(header + b"\n" + text)
                    progress.show()
            world.gather(None)  # until every rank has ended
            progress.show()
        return _join(parts, target, -(-lines // size)) if world.is_main else InputStats()


def _chunk_size(lines: int, world: World) -> int:
    """Lines of a chunk where no earlier run has settled it."""
    most = CHUNK[world.device.type]
    if world.size == 1:
        return most
    return min(most, max(CHUNK["cpu"], lines // (8 * world.size)))  # something for every rank


@contextmanager
def _alone(parts: Path) -> Iterator[None]:
    """Keeps a second process away from the output."""
    parts.mkdir(exist_ok=True)
    if not (parts / _JOB).exists() and any(not f.name.startswith(".") for f in parts.iterdir()):
        raise InputError(
            f"{parts} is where finished parts would lie, but it holds something else: choose "
            "another output, or move that folder"
        )
    lock = FileLock(parts / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"another mt-translate is at work in {parts}: wait, or stop it") from None
    try:
        yield
    finally:
        # Before the lock is free: afterwards the folder may be another process's.
        if _done(parts) == 0:
            shutil.rmtree(parts, ignore_errors=True)
        lock.release()


def _survey(source: Path) -> tuple[int, str]:
    """Lines and a checksum, by reading all: a damaged file is found before the work begins."""
    lines, digest = 0, hashlib.sha256()
    with open_binary(source) as stream:
        for line in raw_lines(stream, str(source)):
            lines += 1
            digest.update(line + b"\n")
    return lines, digest.hexdigest()


def _open(parts: Path, job: dict[str, Any], size: int, report: Report) -> int:
    """Leaves in the folder only finished chunks of this very job.

    Returns:
        Lines of a chunk: those of an earlier run, on another device it may be, or else ``size``.
    """
    try:
        known = json.loads((parts / _JOB).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if not isinstance(known, dict):
        known = {}
    earlier = known.pop("chunk", None)
    same = known == job and isinstance(earlier, int) and earlier > 0
    size = earlier if same else size
    if _done(parts) and not same:
        differ = [key for key in job if known.get(key) != job[key]]
        report(f"{parts} is of another job ({', '.join(differ)}): begun anew")
    for file in parts.iterdir():
        if file.name not in (_JOB, _LOCK) and not (same and file.suffix == ".part"):
            file.unlink()
    if not same:
        files.write_text(parts / _JOB, json.dumps({**job, "chunk": size}, indent=1))
    if done := _done(parts):
        report(f"going on: {min(done * size, job['lines']):,} of {job['lines']:,} lines were done")
    return size


def _chunks(source: Path, lines: int, size: int) -> Iterator[list[bytes]]:
    with open_binary(source) as stream:
        known = islice(raw_lines(stream, str(source)), lines)  # not what is added meanwhile
        while chunk := list(islice(known, size)):
            yield chunk


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:08d}.part"


def _done(parts: Path) -> int:
    return sum(1 for _ in parts.glob("*.part"))


def _claim(parts: Path, number: int) -> bool:
    """Whether the chunk is this rank's to do: not done, and no other rank was faster."""
    part = _part(parts, number)
    if part.exists():
        return False
    try:
        os.close(os.open(part.with_suffix(".claim"), os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


def _join(parts: Path, target: Path, chunks: int) -> InputStats:
    """The output from its chunks, which are no longer needed then."""
    odd = InputStats()
    with files.atomic(target) as temporary, temporary.open("wb") as out:
        for number in range(chunks):
            try:
                part = _part(parts, number).open("rb")
            except FileNotFoundError:
                raise InputError(
                    f"{parts} lacks chunk {number}: all ranks must work in one file system"
                ) from None
            with part:
                odd += InputStats(**json.loads(part.readline()))
                shutil.copyfileobj(part, out)
    for finished in parts.glob("*.part"):
        finished.unlink()
    return odd


class _Progress:
    """Lines done, by all ranks: a bar on a terminal, else a line now and then.

    Args:
        parts: Where finished chunks appear.
        lines: Of the whole input.
        size: Lines of a chunk.
        report: Says a line; None keeps silent.
    """

    def __init__(self, parts: Path, lines: int, size: int, report: Report | None):
        self._parts, self._lines, self._size, self._report = parts, lines, size, report
        self._before = self._count()
        self._begun = self._said = time.perf_counter()
        silent = report is None or not sys.stderr.isatty()
        self._bar = tqdm(
            total=lines, initial=self._before, unit=" lines", dynamic_ncols=True, disable=silent
        )

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        if kind is KeyboardInterrupt and self._report is not None and (done := self._count()):
            self._report(
                f"{done:,} of {self._lines:,} lines are kept in {self._parts}: the same command "
                "goes on from there"
            )

    def show(self) -> None:
        """Counts what is done now."""
        now = time.perf_counter()
        if not self._bar.disable:
            self._bar.update(self._count() - self._bar.n)
        elif self._report is not None and now - self._said >= _LOG_EVERY:
            done = self._count()
            if done == self._before:  # nothing to judge the rate by
                return
            rate = (done - self._before) / (now - self._begun)
            left = tqdm.format_interval((self._lines - done) / rate)
            self._said = now
            self._report(f"{done:,} of {self._lines:,} lines, {rate:,.0f} lines/s, {left} left")

    def _count(self) -> int:
        return min(_done(self._parts) * self._size, self._lines)
