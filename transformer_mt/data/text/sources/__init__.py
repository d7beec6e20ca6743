"""Sentence pairs from files, datasets, test sets and the built-in sample.

To add a kind of source: its fields in ``SourceConfig`` and ``SOURCE_FIELDS``, and its reader in
``SOURCE_READERS``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.lines import read_blocks
from transformer_mt.data.text.sources.files import SAMPLE_VERSION
from transformer_mt.data.text.tags import add_tag
from transformer_mt.errors import InputError
from transformer_mt.protocols import Pair, Reader
from transformer_mt.registries import SOURCE_READERS

__all__ = ["Pair", "fingerprint", "read_pairs"]


def read_pairs(sources: Sequence[SourceConfig], *, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Streams all pairs of all sources, in order; source lines have the tag of their source.

    Nothing is filtered: blank lines and duplicates are pairs, too. The languages are those of
    sources that do not name others.

    Raises:
        InputError: A source is missing, empty or damaged, or has the wrong format.
    """
    for source in sources:
        languages = source.src_lang or src_lang, source.tgt_lang or tgt_lang
        reader: Reader = resolve_name(SOURCE_READERS[source.kind])
        pairs = reader(source, *languages, read_blocks)
        if (first := next(pairs, None)) is None:
            raise InputError(f"{source} has no pairs: leave it out, or download it again")
        for pair in chain([first], pairs):
            yield Pair(add_tag(source.tag, pair.src), pair.tgt) if source.tag else pair


def fingerprint(source: SourceConfig) -> dict[str, Any]:
    """JSON values that identify the content of a source without reading it.

    A file has changed if its path, size or modification time has. A dataset on the hub is
    identified by its names only: without a ``revision``, new commits go unnoticed.

    Raises:
        InputError: A file does not exist, or can be read only once.
    """
    values: dict[str, Any] = {k: v for k, v in asdict(source).items() if v is not None}
    for key, path in source.paths.items():
        if path.is_dir():
            values[key] = [_file_identity(p) for p in sorted(path.rglob("*")) if not p.is_dir()]
        else:
            values[key] = _file_identity(path)
    if source.sample is not None:
        values["version"] = SAMPLE_VERSION
    return values


def _file_identity(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not path.is_file():
        raise InputError(f"{path} is not a regular file; training reads its data more than once")
    return {"path": str(path.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
