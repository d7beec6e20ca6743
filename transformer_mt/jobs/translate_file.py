"""Translate a file in chunks that survive an interruption, by one process or by several ranks.

Finished chunks are kept (``ChunkFolder``) until all are there; then they are joined to the output.
The same command resumes from them after a crash. A rank takes the next chunk that no other rank has
claimed, so fast ranks do not wait for slow ones.
"""

import hashlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer_mt import files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import open_binary, raw_lines
from transformer_mt.decode.engines.engine import EngineChoice
from transformer_mt.decode.engines.fastest_engine import FastestEngine
from transformer_mt.distributed import World
from transformer_mt.errors import InputError
from transformer_mt.jobs.chunk_folder import ENGINE, ChunkFolder
from transformer_mt.jobs.line_processor import AlignedFile, InputStats
from transformer_mt.jobs.translation_setup import CHUNK_LINES, TranslationSetup, translation_world

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two progress messages, where there is no terminal."""

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
        _choose_engine(setup, source, ChunkFolder(target), world)
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


def _choose_engine(setup: TranslationSetup, source: Path, parts: ChunkFolder, world: World) -> None:
    """With ``engine=auto``, chooses the engine for the whole file; every rank takes the same.

    It is the one of an interrupted attempt, or the fastest with the first lines of the file.
    """
    translator = setup.processor.translator
    engine = translator.engine
    if not isinstance(engine, FastestEngine):
        return
    if world.is_main:
        known = parts.read_job()
        recorded = known.get(ENGINE) if known.get("model") == setup.request.checksums else None
        earlier = [choice for choice in engine.candidates if asdict(choice) == recorded]
        if earlier:
            engine.use(earlier[0])
        else:
            chunk = next(_read_chunks(source, *[CHUNK_LINES[world.device.type]] * 2), [])
            lines = [line.decode(errors="replace") for line in chunk]
            translator.choose_engine(lines)
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
    parts = ChunkFolder(target)
    num_lines = chunk_lines = 0
    with parts.locked() if world.is_main else nullcontext():
        if world.is_main:
            num_lines, checksum = _count_lines(source)
            if aligned_file is not None:
                aligned_file.check_line_count(num_lines)
            job = {**settings, "input": checksum, "lines": num_lines}
            chunk_lines = parts.start(job, _default_chunk_lines(num_lines, world), engine)
        num_lines, chunk_lines = world.broadcast_object((num_lines, chunk_lines))
        with _FileProgress(parts, num_lines, chunk_lines, world.is_main) as progress:
            for number, chunk in enumerate(_read_chunks(source, num_lines, chunk_lines)):
                if parts.claim(number):
                    parts.write(number, *process(chunk, number * chunk_lines + 1))
                    progress.update()
            world.gather(None)  # wait until every rank has finished
            progress.update()
        return parts.join(target, -(-num_lines // chunk_lines)) if world.is_main else InputStats()


def _default_chunk_lines(num_lines: int, world: World) -> int:
    """Lines of a chunk of a new job; every rank gets several chunks."""
    maximum = CHUNK_LINES[world.device.type]
    if world.size == 1:
        return maximum
    return min(maximum, max(CHUNK_LINES["cpu"], num_lines // (8 * world.size)))


def _count_lines(source: Path) -> tuple[int, str]:
    """Number of lines, and their SHA-256; a damaged file is found before the work starts."""
    lines, digest = 0, hashlib.sha256()
    with open_binary(source) as stream:
        for line in raw_lines(stream, str(source)):
            lines += 1
            digest.update(line + b"\n")
    return lines, digest.hexdigest()


def _read_chunks(source: Path, num_lines: int, chunk_lines: int) -> Iterator[list[bytes]]:
    with open_binary(source) as stream:
        lines = islice(raw_lines(stream, str(source)), num_lines)  # not lines added meanwhile
        while chunk := list(islice(lines, chunk_lines)):
            yield chunk


class _FileProgress:
    """Lines that all ranks have finished, as a progress bar or as a message now and then."""

    def __init__(self, parts: ChunkFolder, num_lines: int, chunk_lines: int, visible: bool):
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
            kept = f"{done:,} of {self._num_lines:,} lines are kept in {self._parts.path}"
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
        return min(self._parts.num_finished() * self._chunk_lines, self._num_lines)
