"""Translation of HTML pages and XLIFF files; their markup stays as it is."""

import codecs
import logging
import re
from collections.abc import Iterable
from itertools import islice

from transformer_mt.config import TranslateJob
from transformer_mt.decode.documents.html_document import parse_html
from transformer_mt.decode.documents.xliff_document import parse_xliff
from transformer_mt.distributed.environment import env_size
from transformer_mt.errors import InputError, printable
from transformer_mt.jobs.line_processor import InputStats, LineProcessor
from transformer_mt.jobs.translate_stream import open_input, open_output
from transformer_mt.progress_reporter import ProgressReporter

log = logging.getLogger(__name__)

_PARSERS = {"html": parse_html, "xliff": parse_xliff}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(
    rb"""(?:<meta\b[^>]*[\s;"']charset|<\?xml\b[^>]*\sencoding)\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
_ALIASES = {"iso-8859-1": "windows-1252", "us-ascii": "windows-1252", "utf-16": "utf-8"}
_ALIASES |= {"gb2312": "gbk", "shift_jis": "cp932", "x-sjis": "cp932", "euc-kr": "cp949"}
"""Encodings that are declared, and what they mean, as the HTML standard says."""
_ESCAPED = re.compile("([\udc80-\udcff]+)")
_MAX_LISTED = 10
"""Number of places that a message names."""


def translate_document(job: TranslateJob) -> InputStats:
    """Translates a document of ``job.document_format``; the output has the encoding of the input.

    Returns:
        Counts of unusual texts.

    Raises:
        InputError: The document or the model is missing or damaged, the settings conflict, or
            there are several ranks.
    """
    if env_size() > 1:
        raise InputError("several ranks cannot share a document: translate it in one process")
    if job.document_format is None:
        raise InputError("this is not a document: call translate_file or translate_stream")
    processor = LineProcessor(job)
    name = job.input or "standard input"
    with open_input(job.input) as stream:
        content = stream.read()
    try:
        text, encoding = _decode(content)
        document = _PARSERS[job.document_format](text, *processor.languages)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    lines, stats = [unit.line.encode() for unit in document.units], InputStats()
    translations = list[str]()
    with ProgressReporter("texts", "translated", total=len(lines)) as progress:
        for start in range(0, len(lines), processor.chunk_lines):
            chunk = lines[start : start + processor.chunk_lines]
            output = processor.process_bytes(chunk, start + 1, stats).decode()
            translations += output.split("\n")[:-1]
            progress.update(len(translations))
    text, failed = document.translated(translations)
    with open_output(job.output) as sink:
        sink.write(_encode(text, encoding))
        sink.flush()
    processor.log_input_stats(stats)
    log.info(f"{name}: translated {len(lines) - len(failed):,} text(s)")
    _warn(
        "element(s) could not be placed by word alignment",
        len(processor.unplaced),
        map(document.place, processor.unplaced),
    )
    _warn(
        "text(s) have no usable translation and were left as they are",
        len(failed),
        (f"line {document.line_number(unit.start)}" for unit in failed),
    )
    return stats


def _warn(problem: str, count: int, places: Iterable[str]) -> None:
    """Logs how often there is a problem, if anywhere, and the first places; finding one is slow."""
    if count:
        listed = ", ".join(printable(place[:80]) for place in islice(places, _MAX_LISTED))
        more = ", …" if count > _MAX_LISTED else ""
        log.warning(f"{count:,} {problem}: {listed}{more}")


def _decode(content: bytes) -> tuple[str, str]:
    """The text of a document, and its encoding.

    It is what its byte order mark or its first 1,024 bytes say, otherwise UTF-8. Bytes that are not
    valid in it become surrogates.
    """
    encodings = [codec for mark, codec in _BYTE_ORDER_MARKS.items() if content.startswith(mark)]
    if declared := _DECLARED.search(content[:1024]):
        encoding = declared[1].decode().lower()
        encodings.append(_ALIASES.get(encoding, encoding))
    encoding = next(iter(encodings), "utf-8")
    try:
        text = content.decode(encoding, "surrogateescape")
    except (LookupError, UnicodeError) as error:
        raise InputError(f"line 1: cannot be read as {encoding}: {error}") from None
    return text, encoding


def _encode(text: str, encoding: str) -> bytes:
    """Surrogates of invalid bytes as these, other characters that it lacks as ``&#8364;``."""
    errors = ("xmlcharrefreplace", "surrogateescape")
    runs = enumerate(_ESCAPED.split(text))  # every second one is of such bytes
    return b"".join(run.encode(encoding, errors[i % 2]) for i, run in runs)
