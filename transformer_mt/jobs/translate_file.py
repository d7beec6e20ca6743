"""Translate a file in chunks that survive an interruption, by one process or by several ranks.

Finished chunks are kept in a folder next to the output, ``OUTPUT.parts``, until all are there; then
they are joined to the output. The same command resumes from them after a crash. A rank takes the
next chunk that no other rank has claimed, so fast ranks do not wait for slow ones.
"""

import hashlib
import json
import logging
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
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import open_binary, raw_lines
from transformer_mt.decode.engines.engine import EngineChoice
from transformer_mt.decode.engines.fastest_engine import FastestEngine
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import AlignedFile, InputStats
from transformer_mt.jobs.translation_setup import CHUNK_LINES, TranslationSetup, translation_world

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two progress messages, where there is no terminal."""

_JOB, _LOCK = "job.json", ".lock"
_CHUNK, _ENGINE = "chunk", "engine"
"""Keys of ``job.json`` that record how an attempt works, without changing the output."""

ProcessChunk = Callable[[list[bytes], int], tuple[bytes, InputStats]]
"""(lines, number of the first line) → their output."""


def translate_file(job: TranslateJob) -> InputStats:
    """Translate ``job.input`` to ``job.output``, resuming what an interrupted attempt has left.

    Under torchrun or srun all ranks share the file.

    Args:
        job: What to translate, from ``compose(…, "translate")`` or built directly.

    Returns:
        Counts of unusual input lines, on rank 0.

    Raises:
        InputError: ``input`` and ``output`` are not both files, a file or a model is missing or
            damaged, the settings conflict, or another process is writing the output.
    """
    if not translates_file(job):
        raise InputError("translate_file needs input=FILE and output=FILE, not pipes or devices")
    assert job.input is not None
    assert job.output is not None
    with translation_world(job) as world:
        source = files.expand_user(job.input)
        target = files.expand_user(job.output).resolve()
        setup = TranslationSetup.open(job, world)
        _settle_engine(setup, source, _parts(target), world)
        stats = process_file(
            source,
            target,
            setup.output_settings(job),
            setup.processor.process_bytes,
            world,
            setup.processor.aligned_file,
            engine=setup.processor.translator.engine.choice,
        )
        setup.log_input_stats(stats)
        return stats


def translates_file(job: TranslateJob) -> bool:
    """Whether input and output are both files, not pipes or devices, so that a job can resume."""
    paths = job.input, job.output
    return all(path is not None and not files.is_stream(files.expand_user(path)) for path in paths)


def _settle_engine(setup: TranslationSetup, source: Path, parts: Path, world: World) -> None:
    """With ``engine=auto``, chooses the engine for the whole file; every rank takes the same.

    It is the one of an interrupted attempt, or the fastest with the first lines of the file.
    """
    translator = setup.processor.translator
    engine = translator.engine
    if not isinstance(engine, FastestEngine):
        return
    if world.is_main:
        known = _read_job(parts)
        recorded = known.get(_ENGINE) if known.get("model") == setup.request.checksums else None
        earlier = [choice for choice in engine.candidates if asdict(choice) == recorded]
        if earlier:
            engine.use(earlier[0])
        else:
            chunk = next(_read_chunks(source, *[CHUNK_LINES[world.device.type]] * 2), [])
            lines = [line.decode(errors="replace") for line in chunk]
            translator.settle_engine(lines)
    engine.use(world.broadcast_object(engine.choice))


def process_file(
    source: Path,
    target: Path,
    settings: dict[str, Any],
    process: ProcessChunk,
    world: World,
    aligned_file: AlignedFile | None = None,
    *,
    engine: EngineChoice | None = None,
) -> InputStats:
    """Process a file chunk by chunk, reusing the chunks of an interrupted attempt.

    Args:
        source: The input, plain or compressed.
        target: The output; it appears once it is complete.
        settings: JSON values that the output depends on; chunks made with others are not reused.
        process: Produces the output of a chunk.
        world: The ranks that share the work; all see the same files.
        aligned_file: What ``process`` reads in step with the input.
        engine: The engine that ``process`` uses, recorded for a later attempt.
    """
    parts = _parts(target)
    num_lines = chunk_lines = 0
    with _locked(parts) if world.is_main else nullcontext():
        if world.is_main:
            num_lines, checksum = _count_lines(source)
            if aligned_file is not None:
                aligned_file.check_line_count(num_lines)
            job = {**settings, "input": checksum, "lines": num_lines}
            chunk_lines = _open_parts(parts, job, _default_chunk_lines(num_lines, world), engine)
        num_lines, chunk_lines = world.broadcast_object((num_lines, chunk_lines))
        with _FileProgress(parts, num_lines, chunk_lines, world.is_main) as progress:
            for number, chunk in enumerate(_read_chunks(source, num_lines, chunk_lines)):
                if _claim(parts, number):
                    text, stats = process(chunk, number * chunk_lines + 1)
                    header = json.dumps(asdict(stats)).encode()
                    with files.atomic(_part(parts, number)) as temporary:
                        temporary.write_bytes(header + b"\n" + text)
                    progress.update()
            world.gather(None)  # wait until every rank has finished
            progress.update()
        return _join(parts, target, -(-num_lines // chunk_lines)) if world.is_main else InputStats()


def _default_chunk_lines(num_lines: int, world: World) -> int:
    """Lines of a chunk, unless an earlier attempt has determined it: several for every rank."""
    maximum = CHUNK_LINES[world.device.type]
    if world.size == 1:
        return maximum
    return min(maximum, max(CHUNK_LINES["cpu"], num_lines // (8 * world.size)))


@contextmanager
def _locked(parts: Path) -> Iterator[None]:
    """Lock the folder of the chunks against other processes."""
    parts.mkdir(exist_ok=True)
    if not (parts / _JOB).exists() and any(not f.name.startswith(".") for f in parts.iterdir()):
        raise InputError(
            f"{parts}, the folder for finished chunks, contains other files: choose a different "
            "output, or move that folder"
        )
    lock = FileLock(parts / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"another mt-translate is using {parts}: wait, or stop it") from None
    try:
        yield
    finally:
        # Before the lock is released: afterwards the folder may belong to another process.
        if _num_finished(parts) == 0:
            shutil.rmtree(parts, ignore_errors=True)
        lock.release()


def _count_lines(source: Path) -> tuple[int, str]:
    """Number of lines, and their SHA-256; a damaged file is found before the work starts."""
    lines, digest = 0, hashlib.sha256()
    with open_binary(source) as stream:
        for line in raw_lines(stream, str(source)):
            lines += 1
            digest.update(line + b"\n")
    return lines, digest.hexdigest()


def _read_job(parts: Path) -> dict[str, Any]:
    """The job that has left chunks; empty if there is none."""
    try:
        known = json.loads((parts / _JOB).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _open_parts(
    parts: Path, job: dict[str, Any], chunk_lines: int, engine: EngineChoice | None
) -> int:
    """Keep only finished chunks of this very job; returns the number of lines of a chunk.

    It is that of an earlier attempt, perhaps on another device, or else ``chunk_lines``.
    """
    known = _read_job(parts)
    earlier = known.pop(_CHUNK, None)
    known.pop(_ENGINE, None)
    same = known == job and isinstance(earlier, int) and earlier > 0
    chunk_lines = earlier if same else chunk_lines
    if _num_finished(parts) and not same:
        differ = [key for key in job if known.get(key) != job[key]]
        log.info("%s is of a different job (%s): starting again", parts, ", ".join(differ))
    for file in parts.iterdir():
        if file.name not in (_JOB, _LOCK) and not (same and file.suffix == ".part"):
            file.unlink()
    if not same:
        record = {**job, _CHUNK: chunk_lines, _ENGINE: None if engine is None else asdict(engine)}
        files.write_text(parts / _JOB, json.dumps(record, indent=1))
    if done := _num_finished(parts):
        done_lines = min(done * chunk_lines, job["lines"])
        log.info("resuming: %s of %s lines are done", f"{done_lines:,}", f"{job['lines']:,}")
    return chunk_lines


def _read_chunks(source: Path, num_lines: int, chunk_lines: int) -> Iterator[list[bytes]]:
    with open_binary(source) as stream:
        lines = islice(raw_lines(stream, str(source)), num_lines)  # not lines added meanwhile
        while chunk := list(islice(lines, chunk_lines)):
            yield chunk


def _parts(target: Path) -> Path:
    return target.with_name(f"{target.name}.parts")


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:08d}.part"


def _num_finished(parts: Path) -> int:
    return sum(1 for _ in parts.glob("*.part"))


def _claim(parts: Path, number: int) -> bool:
    """Claim a chunk; False if it is finished, or another rank has claimed it."""
    part = _part(parts, number)
    if part.exists():
        return False
    try:
        os.close(os.open(part.with_suffix(".claim"), os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


def _join(parts: Path, target: Path, chunks: int) -> InputStats:
    """Join the chunks to the output, and delete them."""
    stats = InputStats()
    with files.atomic(target) as temporary, temporary.open("wb") as out:
        for number in range(chunks):
            try:
                part = _part(parts, number).open("rb")
            except FileNotFoundError:
                raise InputError(
                    f"chunk {number} is missing in {parts}: all ranks must share a file system"
                ) from None
            with part:
                stats += InputStats(**json.loads(part.readline()))
                shutil.copyfileobj(part, out)
    for finished in parts.glob("*.part"):
        finished.unlink()
    return stats


class _FileProgress:
    """Lines that all ranks have finished, as a progress bar or as a message now and then."""

    def __init__(self, parts: Path, num_lines: int, chunk_lines: int, visible: bool):
        self._parts, self._num_lines, self._chunk_lines = parts, num_lines, chunk_lines
        self._visible, self._initial = visible, self._count()
        self._started = self._last_message = time.perf_counter()
        hidden = not visible or not sys.stderr.isatty()
        options = {"unit": " lines", "dynamic_ncols": True, "disable": hidden}
        self._bar = tqdm(total=num_lines, initial=self._initial, **options)

    def __enter__(self) -> "_FileProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        if kind is KeyboardInterrupt and self._visible and (done := self._count()):
            kept = f"{done:,} of {self._num_lines:,} lines are kept in {self._parts}"
            log.info("Stopped. %s. Run the same command to resume.", kept)

    def update(self) -> None:
        """Show how many lines are finished now."""
        now = time.perf_counter()
        if not self._bar.disable:
            self._bar.update(self._count() - self._bar.n)
        elif self._visible and now - self._last_message >= _LOG_INTERVAL:
            done = self._count()
            if done == self._initial:  # the rate is not known yet
                return
            rate = (done - self._initial) / (now - self._started)
            left = tqdm.format_interval((self._num_lines - done) / rate)
            self._last_message = now
            progress = f"{done:,} of {self._num_lines:,} lines, {rate:,.0f} lines/s, {left} left"
            log.info("%s", progress)

    def _count(self) -> int:
        return min(_num_finished(self._parts) * self._chunk_lines, self._num_lines)
