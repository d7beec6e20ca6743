"""Translation (``mt-translate``) of lines, a file or a document: chunk by chunk, in one loop."""

import hashlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import BinaryIO

from transformer_mt import files
from transformer_mt.config import TranslateJob
from transformer_mt.console import progress_bar
from transformer_mt.data.text.lines import open_binary, raw_blocks, raw_lines
from transformer_mt.errors import InputError, printable
from transformer_mt.jobs.line_processor import InputStats, LineProcessor
from transformer_mt.jobs.partial_output import partial_output
from transformer_mt.protocols import Document
from transformer_mt.registries import DOCUMENT_FORMATS

log = logging.getLogger(__name__)


def translate(
    job: TranslateJob, source: BinaryIO | None = None, sink: BinaryIO | None = None
) -> InputStats:
    """Translates lines, one line out for each line in, or a document.

    The lines of a pipe are translated as soon as they have arrived. From file to file, the same
    command resumes after an interruption behind the last finished chunk.

    Args:
        job: What to translate, from ``compose(…, "translate")`` or built directly.
        source: UTF-8 lines, or a document; None reads ``job.input``, or standard input.
        sink: Receives the output, flushed after each chunk; None writes to ``job.output``, or
            standard output.

    Returns:
        Number of lines, and counts of unusual ones.

    Raises:
        InputError: A file or a model is missing or damaged, the settings conflict, or another
            process is writing the output.
    """
    document: Document | None = None
    if job.document_format is not None:
        document = resolve_name(DOCUMENT_FORMATS[job.document_format])(job)
    processor = LineProcessor(job, document)
    name = "source" if source else job.input or "standard input"
    to_file = source is None and sink is None and _is_file(job.input) and _is_file(job.output)
    if document is None and to_file:
        _translate_file(str(job.input), str(job.output), processor)
    else:
        with ExitStack() as stack:
            stream = source or stack.enter_context(_open_input(job.input))
            file = sink or stack.enter_context(_open_output(job.output))
            output: Iterable[bytes]
            if document is None:
                chunks = _read_available(stream, name, processor.chunk_lines)
                output = _translated(chunks, processor)
            else:
                output = [_translate_document(document, stream, name, processor)]
            for text in output:
                file.write(text)
                file.flush()
    processor.log_input_stats()
    return processor.stats


def _translated(
    chunks: Iterable[list[bytes]], processor: LineProcessor, total: int | None = None
) -> Generator[bytes, None, None]:
    """The output of each chunk of lines; reports progress towards ``total``."""
    with ExitStack() as stack:
        progress = None
        if total is not None:  # a stream has none, and starts 50 ms earlier without tqdm
            bar = progress_bar("lines", "translated", done=processor.stats.lines, total=total)
            progress = stack.enter_context(bar)
        for chunk in chunks:
            yield processor.process_bytes(chunk)
            if progress is not None:
                progress.update(len(chunk))
    processor.check_line_count(processor.stats.lines)


def _translate_file(source: str, target: str, processor: LineProcessor) -> None:
    """Translates a file to a file; resumes what an interrupted attempt has left."""
    total, digest = 0, hashlib.sha256()
    with open_binary(source) as stream:  # a damaged file is found before the work starts
        for line in raw_lines(stream, source):
            total += 1
            digest.update(line + b"\n")
    processor.check_line_count(total)
    job = {**processor.output_settings(), "input": digest.hexdigest(), "lines": total}
    place = files.expand_user(target).resolve()
    with partial_output(place, job, total) as (stats, append), open_binary(source) as stream:
        processor.stats = stats
        lines = raw_lines(stream, source)
        lines = islice(lines, stats.lines, total)  # without lines added meanwhile
        chunks = _chunks(lines, processor.chunk_lines)
        with closing(_translated(chunks, processor, total)) as output:
            for text in output:
                append(text)


def _translate_document(
    document: Document, stream: BinaryIO, name: str, processor: LineProcessor
) -> bytes:
    """Translates the lines into which a document is cut, and puts it together again."""
    content = b"".join(raw_blocks(stream, name))
    try:
        lines = [line.encode() for line in document.read(content, *processor.languages)]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    chunks = _chunks(lines, processor.chunk_lines)
    text = b"".join(_translated(chunks, processor, len(lines))).decode()
    translated = document.write(text.split("\n")[:-1])
    log.info(f"{name}: translated {translated.num_translated:,} text(s)")
    for warning in translated.warnings:
        log.warning(printable(warning))
    return translated.content


def _chunks(lines: Iterable[bytes], max_lines: int) -> Iterator[list[bytes]]:
    lines = iter(lines)
    while chunk := list(islice(lines, max_lines)):
        yield chunk


def _read_available(source: BinaryIO, name: str, max_lines: int) -> Iterator[list[bytes]]:
    """Chunks of the lines that have arrived: one of a slow pipe, many of a fast one."""
    lines: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=max_lines)

    def read() -> None:
        try:
            for line in raw_lines(source, name):
                lines.put(line)
            lines.put(None)
        except BaseException as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        batch, item = [], lines.get()
        time.sleep(0.01)  # so that the first chunk of a fast stream has more than one line
        while isinstance(item, bytes):
            batch.append(item)
            if len(batch) == max_lines or lines.empty():
                break
            item = lines.get()
        if batch:
            yield batch
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def _is_file(path: str | None) -> bool:
    """Whether a setting names a file, not a pipe or a device."""
    return path is not None and not files.is_stream(files.expand_user(path))


def _open_input(path: str | None) -> AbstractContextManager[BinaryIO]:
    """Standard input, or a file, which may be compressed."""
    if path is not None:
        return open_binary(path)
    # Neither sys.stdin nor closed: the reading thread holds the lock of a stream it waits on, and
    # the program could not end before the next line.
    return nullcontext(open(0, "rb", closefd=False))


@contextmanager
def _open_output(path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears once it is complete."""
    if path is None:
        if getattr(sys.stdout, "buffer", None) is None:  # as in a notebook
            raise InputError("standard output is closed or takes no bytes: set output=FILE")
        yield sys.stdout.buffer
        return
    with files.output(Path(path)) as place, place.open("wb") as file:
        yield file
