"""Translation of a file in chunks that survive an interruption, by one process or by several ranks.

Finished chunks are kept (``ChunkFolder``) until all are there; then they are joined to the output.
The same command resumes from them after a crash. Of N ranks each takes every Nth chunk.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from itertools import islice
from pathlib import Path

from transformer_mt import files
from transformer_mt.config import DistributedConfig, TranslateJob
from transformer_mt.data.text.lines import open_binary, raw_lines
from transformer_mt.distributed.environment import Ranks, num_ranks
from transformer_mt.errors import InputError
from transformer_mt.jobs.chunk_folder import ChunkFolder
from transformer_mt.jobs.line_processor import (
    CHUNK_LINES,
    InputStats,
    LineProcessor,
    translates_file,
)
from transformer_mt.progress_reporter import ProgressReporter

log = logging.getLogger(__name__)

_LONG_TIMEOUT = DistributedConfig(timeout_minutes=24 * 60)
"""At the end of a file a rank waits for another to finish its chunk, which may take long on a CPU.
The failure of a rank is still noticed immediately."""


def translate_file(job: TranslateJob) -> InputStats:
    """Translates ``job.input`` to ``job.output``, resuming what an interrupted attempt has left.

    Under torchrun all ranks share the file.

    Args:
        job: What to translate, from ``compose(…, "translate")`` or built directly.

    Returns:
        Counts of unusual input lines, on rank 0.

    Raises:
        InputError: ``input`` and ``output`` are not both files, or the input is a document; a file
            or a model is missing or damaged, the settings conflict, or another process is writing
            the output.
    """
    if job.document_format is not None:
        raise InputError(f"format={job.document_format} is a document: call translate_document")
    if not translates_file(job):
        raise InputError("translate_file needs input=FILE and output=FILE, not pipes or devices")
    assert job.input is not None
    assert job.output is not None
    ranks: Ranks = Ranks()
    device: str | None = None
    with ExitStack() as stack:
        if num_ranks() > 1:  # otherwise PyTorch may not be needed
            from transformer_mt.distributed.world import join, pick_device

            ranks = world = stack.enter_context(join(pick_device(job.device), _LONG_TIMEOUT))
            device = str(world.device)  # each rank has one of its own
            if not world.is_main:  # rank 0 speaks for all; the others report failures only
                logging.getLogger("transformer_mt").setLevel(logging.ERROR)
        processor = LineProcessor(job, device)
        source, target = files.expand_user(job.input), files.expand_user(job.output).resolve()
        stats = process_file(source, target, processor, ranks)
        processor.log_input_stats(stats)
        return stats


def process_file(source: Path, target: Path, processor: LineProcessor, ranks: Ranks) -> InputStats:
    """Processes a file chunk by chunk, reusing the chunks of an interrupted attempt.

    Args:
        source: The input, plain or compressed.
        target: The output; it appears once it is complete.
        processor: Produces the output of a chunk.
        ranks: The ranks that share the work; all see the same files.

    Raises:
        InputError: The input cannot be read, or there are chunks of a job with other settings.
    """
    parts = ChunkFolder(target)
    num_lines = chunk_lines = 0
    with parts.locked() if ranks.is_main else nullcontext():
        if ranks.is_main:
            num_lines, checksum = _count_lines(source)
            if processor.aligned_file is not None:
                processor.aligned_file.check_line_count(num_lines)
            job = {**processor.output_settings(), "input": checksum, "lines": num_lines}
            chunk_lines = processor.chunk_lines
            if ranks.size > 1:  # every rank gets several chunks
                several = max(CHUNK_LINES["cpu"], num_lines // (8 * ranks.size))
                chunk_lines = min(chunk_lines, several)
            chunk_lines = parts.start(job, chunk_lines)
        num_lines, chunk_lines = ranks.broadcast_object((num_lines, chunk_lines))

        def done() -> int:
            return min(parts.num_finished() * chunk_lines, num_lines)

        try:
            with ProgressReporter(
                "lines", "translated", done=done(), total=num_lines, visible=ranks.is_main
            ) as progress:
                for number, chunk in enumerate(_read_chunks(source, num_lines, chunk_lines)):
                    if number % ranks.size == ranks.rank and not parts.is_finished(number):
                        stats = InputStats()
                        first_line = number * chunk_lines + 1
                        text = processor.process_bytes(chunk, first_line, stats)
                        parts.write(number, text, stats)
                        progress.update(done())
                ranks.gather(None)  # wait until every rank has finished
                progress.update(done())
        except KeyboardInterrupt:
            if ranks.is_main and (kept := done()):
                kept_lines = f"{kept:,} of {num_lines:,} lines are kept in {parts.path}"
                log.info("Stopped. %s. Run the same command to resume.", kept_lines)
            raise
        return parts.join(target, -(-num_lines // chunk_lines)) if ranks.is_main else InputStats()


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
