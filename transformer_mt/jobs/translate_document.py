"""Translation of a document, by a class that cuts it into lines and puts it together again."""

import logging
from pkgutil import resolve_name

from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import read_blocks
from transformer_mt.distributed.environment import num_ranks
from transformer_mt.errors import InputError, printable
from transformer_mt.jobs.line_processor import InputStats, LineProcessor
from transformer_mt.jobs.translate_stream import open_input, open_output
from transformer_mt.progress_reporter import ProgressReporter
from transformer_mt.protocols import Document
from transformer_mt.registries import DOCUMENT_FORMATS

log = logging.getLogger(__name__)


def translate_document(job: TranslateJob) -> InputStats:
    """Translates a document of ``job.document_format``.

    Returns:
        Counts of unusual texts.

    Raises:
        InputError: The document or the model is missing or damaged, the settings conflict, or
            there are several ranks.
    """
    if num_ranks() > 1:
        raise InputError("several ranks cannot share a document: translate it in one process")
    if job.document_format is None:
        raise InputError("this is not a document: call translate_file or translate_stream")
    document: Document = resolve_name(DOCUMENT_FORMATS[job.document_format])(job)
    processor = LineProcessor(job, document=document)
    name = job.input or "standard input"
    if job.input is None:
        with open_input(None) as stream:
            content = stream.read()
    else:
        content = b"".join(read_blocks(job.input))
    try:
        lines = [line.encode() for line in document.read(content, *processor.languages)]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    translations, stats = list[str](), InputStats()
    with ProgressReporter("texts", "translated", total=len(lines)) as progress:
        for start in range(0, len(lines), processor.chunk_lines):
            chunk = lines[start : start + processor.chunk_lines]
            output = processor.process_bytes(chunk, start + 1, stats).decode()
            translations += output.split("\n")[:-1]
            progress.update(len(translations))
    translated = document.write(translations)
    with open_output(job.output) as sink:
        sink.write(translated.content)
        sink.flush()
    processor.log_input_stats(stats)
    log.info(f"{name}: translated {translated.num_translated:,} text(s)")
    for warning in translated.warnings:
        log.warning(printable(warning))
    return stats
