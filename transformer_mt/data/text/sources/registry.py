"""Registry of source readers, and what several of them share."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from transformer_mt.config import SourceConfig
from transformer_mt.errors import InputError


class Pair(NamedTuple):
    """A sentence and its translation, each one line of text."""

    src: str
    tgt: str


Reader = Callable[[SourceConfig, str, str], Iterator[Pair]]
"""Streams the pairs of a source, given the source and target language."""

READERS: dict[str, Reader] = {}
"""Reader of each ``SourceConfig.kind``."""


def reader(kind: str) -> Callable[[Reader], Reader]:
    """Registers the decorated function as the reader of a kind of source."""

    def register(read: Reader) -> Reader:
        READERS[kind] = read
        return read

    return register


def chosen_columns(source: SourceConfig, src_default: str, tgt_default: str) -> tuple[str, str]:
    """Source and target column of a source, which must differ."""
    src, tgt = source.src_column or src_default, source.tgt_column or tgt_default
    if src == tgt:
        raise InputError(
            f"{source}: source and target are both column {src}; set src_column and tgt_column"
        )
    return src, tgt


def find_column(column: str, names: Collection[str], where: str) -> str:
    """Name of an existing column: ``column``, or the field of that name of ``translation``."""
    for name in (column, f"translation.{column}"):
        if name in names:
            return name
    raise InputError(
        f"{where}: no column {column!r}, only: {', '.join(names)}; set src_column and tgt_column"
    )


def one_line(value: object, column: str, where: str) -> str:
    """A value of a column, which must be valid text, with line feeds replaced by spaces."""
    if not isinstance(value, str):
        raise InputError(f"{where}: {column} is {type_name(value)}, not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise InputError(f"{where}: {column} is not valid Unicode ({error.reason})") from error
    if "\n" in value:
        return " ".join(part.removesuffix("\r") for part in value.strip("\r\n").split("\n"))
    return value


def type_name(value: object) -> str:
    """Type of a JSON or Arrow value, for messages."""
    return "null" if value is None else f"of type {type(value).__name__}"
