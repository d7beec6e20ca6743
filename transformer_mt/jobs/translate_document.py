"""Translation of HTML pages and XLIFF files, whose markup stays as it is."""

import codecs
import logging
import re
import sys
from pathlib import Path

from tqdm import trange

from transformer_mt import files
from transformer_mt.config import TranslateJob
from transformer_mt.data.text.lines import open_binary
from transformer_mt.decode.documents.html_document import parse_html
from transformer_mt.decode.documents.xliff_document import parse_xliff
from transformer_mt.distributed.environment import env_size
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import LineProcessor

log = logging.getLogger(__name__)

_PARSERS = {"html": parse_html, "xliff": parse_xliff}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(rb"""(?:<meta\b[^>]*\bcharset|<\?xml\b[^>]*\bencoding)\s*=\s*["']?([\w.:-]+)""")
_LISTED = 10
"""Number of elements that a message names."""


def translate_document(job: TranslateJob) -> None:
    """Translates a document, from a file or standard input, in the encoding that it has.

    Args:
        job: What to translate, with ``document_format``.

    Raises:
        InputError: The document or the model is missing or damaged, the settings conflict, or
            there are several ranks.
    """
    if env_size() > 1:
        raise InputError("several ranks cannot share a document: use one process for each")
    assert job.document_format is not None
    processor = LineProcessor(job)
    name = job.input or "standard input"
    if job.input is None:
        content = sys.stdin.buffer.read()
    else:
        with open_binary(files.expand_user(job.input)) as file:
            content = file.read()
    try:
        text, encoding = _decode(content)
        document = _PARSERS[job.document_format](text, *processor.languages)
    except InputError as error:
        raise InputError(f"{name}, {error}") from None
    lines = [unit.line for unit in document.units]
    translations: list[str] = []
    step = processor.chunk_lines
    for start in trange(0, len(lines), step, unit=" chunks", disable=not sys.stderr.isatty()):
        translations += processor.translate(lines[start : start + step])
    text, failed = document.translated(translations)
    content = text.encode(encoding, "document")
    if job.output is None:
        sys.stdout.buffer.write(content)
    else:
        with files.output(files.expand_user(job.output)) as path:
            path.write_bytes(content)
    log.info("%s: %s", name, f"translated {len(lines) - len(failed):,} texts")
    ...


def _decode(content: bytes) -> tuple[str, str]:
    """The text of a document, and its encoding.

    That is what its byte order mark or its first 1,024 bytes declare, or else UTF-8. Bytes that are
    not valid in it become surrogates, which stay as they are.
    """
    marks = (codec for mark, codec in _BYTE_ORDER_MARKS.items() if content.startswith(mark))
    declared = _DECLARED.search(content[:1024])
    encoding = next(marks, declared[1].decode() if declared else "utf-8")
    if encoding.lower() in ("iso-8859-1", "latin-1", "us-ascii", "ascii"):
        encoding = "windows-1252"  # so the HTML standard says
    try:
        return content.decode(encoding, "surrogateescape"), encoding
    except (LookupError, UnicodeError) as error:
        raise InputError(f"line 1: cannot be decoded as {encoding}: {error}") from None


def _encode_error(error: UnicodeError) -> tuple[str | bytes, int]:
    """Writes a surrogate as its byte, and another character as a reference (``&#8364;``)."""
    assert isinstance(error, UnicodeEncodeError)
    error.end = error.start + 1
    is_byte = "\udc80" <= error.object[error.start] <= "\udcff"
    return codecs.lookup_error("surrogateescape" if is_byte else "xmlcharrefreplace")(error)


codecs.register_error("document", _encode_error)
