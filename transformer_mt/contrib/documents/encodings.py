"""Decoding and encoding of documents, by byte order mark or declaration; invalid bytes are kept."""

import codecs
import re

from transformer_mt import InputError

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


def decode(content: bytes) -> tuple[str, str]:
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


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a document; the inverse of ``decode``.

    Surrogates become the invalid bytes that they stand for, and other characters that the encoding
    lacks become references, such as ``&#8364;``.
    """
    errors = ("xmlcharrefreplace", "surrogateescape")
    runs = enumerate(_ESCAPED.split(text))  # every second one is of such bytes
    return b"".join(run.encode(encoding, errors[i % 2]) for i, run in runs)
