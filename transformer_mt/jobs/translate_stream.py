"""Translation of a stream: each line is answered as soon as it has arrived."""

import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from transformer_mt import files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import open_binary, raw_lines
from transformer_mt.distributed.environment import num_ranks
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import InputStats, LineProcessor


def translate_stream(
    job: TranslateJob, source: BinaryIO | None = None, sink: BinaryIO | None = None
) -> InputStats:
    """Translates lines as they arrive, one line out for each line in.

    Args:
        job: What to translate with, from ``compose(…, "translate")`` or built directly.
        source: UTF-8 lines; None reads ``job.input``, or standard input.
        sink: Receives the output, flushed after each batch; None writes to ``job.output``, or
            standard output.

    Returns:
        Counts of unusual input lines.

    Raises:
        InputError: A file or a model is missing or damaged, the settings conflict, the input is a
            document, or there are several ranks.
    """
    if job.document_format is not None:
        raise InputError(f"format={job.document_format} is a document: call translate_document")
    if num_ranks() > 1:
        raise InputError("several ranks can share only a file: set input=FILE and output=FILE")
    processor = LineProcessor(job)
    name = job.input or "standard input" if source is None else "source"
    stats, next_line = InputStats(), 1
    with (
        open_input(job.input) if source is None else nullcontext(source) as lines_in,
        open_output(job.output) if sink is None else nullcontext(sink) as lines_out,
    ):
        for raw in _read_available(lines_in, name, processor.chunk_lines):
            lines_out.write(processor.process_bytes(raw, next_line, stats))
            lines_out.flush()
            next_line += len(raw)
        if (aligned := processor.aligned_file) is not None:
            aligned.check_line_count(next_line - 1)
    processor.log_input_stats(stats)
    return stats


def _read_available(source: BinaryIO, name: str, max_lines: int) -> Iterator[list[bytes]]:
    """Batches of the lines that have arrived: one of a slow pipe, many of a file or a fast pipe."""
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
        time.sleep(0.01)  # so that the first batch of a fast stream has more than one line
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


def open_input(path: str | None) -> AbstractContextManager[BinaryIO]:
    """Standard input, or a file, which may be compressed."""
    if path is not None:
        return open_binary(path)
    # Neither sys.stdin nor closed: the reading thread holds the lock of a stream it waits on, and
    # the program could not end before the next line.
    return nullcontext(open(0, "rb", closefd=False))


@contextmanager
def open_output(path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears once it is complete."""
    if path is None:
        if getattr(sys.stdout, "buffer", None) is None:  # as in a notebook
            raise InputError("standard output is closed or takes no bytes: set output=FILE")
        yield sys.stdout.buffer
        return
    with files.output(Path(path)) as place, place.open("wb") as file:
        yield file
