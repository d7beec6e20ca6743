"""Reading of text files as lines: UTF-8, plain or compressed, split at line feeds only."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from transformer_mt.errors import InputError
from transformer_mt.files import COMPRESSED, expand_user, reading

_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}

_DAMAGE = (zlib.error, lzma.LZMAError)
"""What reading a damaged compressed file raises, besides what every reader may."""
_REMEDY = "copy or download it again, or correct its name if it is not compressed"

_OTHER_FORMATS = {
    (b"\xff\xfe", b"\xfe\xff"): "UTF-16, not UTF-8: convert it, e.g. iconv -f utf-16 -t utf-8",
    (b"\x1f\x8b",): "compressed by gzip: decompress it, or give its file a name that ends in .gz",
    (b"PK\3\4", b"%PDF-"): "a document or archive, not text: convert it, e.g. to CSV or XLIFF",
}
"""First bytes of files that are not UTF-8 text, and what to do about them."""

_BLOCK_BYTES = 2**20

_VISIBLE = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
"""A character that is not a space, a control character or of zero width."""


def is_blank(text: str) -> bool:
    """Whether a text has nothing visible: only spaces, control and zero-width characters."""
    return not _VISIBLE.search(text)


def open_binary(path: str | Path) -> BinaryIO:
    """Opens a file for reading, decompressed if its suffix is in ``COMPRESSED``; expands ``~``."""
    path = expand_user(path)
    with reading(path):
        if path.suffix in _OPENERS:
            # BufferedReader finds lines in C; GzipFile's own readline is twice as slow.
            return io.BufferedReader(cast(io.RawIOBase, _OPENERS[path.suffix](path)))
        stream = path.open("rb")
    if path.suffix == ".zst":
        # The zstandard package ends a truncated file without an error; Arrow's reader raises.
        from pyarrow import CompressedInputStream

        return io.BufferedReader(CompressedInputStream(stream, "zstd"))
    return stream


def read_lines(path: str | Path) -> Iterator[str]:
    """Streams the lines of a file of any size, without their line ends."""
    suffixes = ", ".join(COMPRESSED)
    remedy = f"if it is compressed, its name must end in one of {suffixes}"
    with open_binary(path) as stream, reading(path, remedy=remedy) as place:
        for place.line, line in enumerate(raw_lines(stream, str(path)), 1):
            yield line.decode()


def raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    r"""Streams the undecoded lines of an open binary stream, without their line ends.

    A line ends at ``\n`` only, as for sacreBLEU and ``wc``: U+2028, U+0085, ``\r`` and form feeds
    are text. The ``\r`` of a CRLF end and a byte order mark at the start are removed.

    Args:
        stream: Text.
        name: Name of the stream in error messages.
    """
    with reading(name, *_DAMAGE, remedy=_REMEDY) as place:
        place.line = 1
        first = stream.readline().removeprefix(codecs.BOM_UTF8)
        for starts, problem in _OTHER_FORMATS.items():
            if first.startswith(starts):
                raise InputError(f"{name} is {problem}")
        for next_line, line in enumerate(chain([first] if first else [], stream), 2):
            yield line.removesuffix(b"\n").removesuffix(b"\r")
            place.line = next_line


def read_blocks(path: str | Path) -> Iterator[bytes]:
    """Streams a file of any encoding in blocks of bytes, decompressed as by ``open_binary``."""
    with open_binary(path) as stream:
        yield from raw_blocks(stream, str(path))


def raw_blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Streams an open binary stream in blocks; ``name`` is that in error messages."""
    with reading(name, *_DAMAGE, remedy=_REMEDY):
        yield from iter(partial(stream.read, _BLOCK_BYTES), b"")


def as_lines(lines: Iterable[str]) -> list[str]:
    """The lines that a caller passes as a list; a single string is refused."""
    if isinstance(lines, str):
        raise TypeError("expected a list, not a single string: pass [text]")
    return list(lines)
