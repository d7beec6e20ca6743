"""Files: read so that errors name file and line, written atomically; JSON, checksums and paths.

An entry of the cache is a folder that takes long to build, named by a hash of everything that it
depends on.
"""

import errno
import glob
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.errors import CacheError, InputError, first_line, format_os_error

log = logging.getLogger(__name__)

COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
"""Suffixes of the compressed files that are decompressed while they are read."""


@dataclass
class Place:
    """A place in a file, as messages name it: ``a.tsv`` or ``a.tsv, line 17``."""

    path: str | Path
    line: int | None = None
    """Number of the line that is being read, from 1; None outside lines."""

    def __str__(self) -> str:
        return str(self.path) if self.line is None else f"{self.path}, line {self.line}"


@contextmanager
def reading(path: str | Path, *damage: type[Exception], remedy: str = "") -> Iterator[Place]:
    """Context in which a file is read and parsed: an error names the file, and the line if any.

    A reader of lines moves the place on::

        with reading(path) as place:
            for place.line, text in enumerate(file, 1):
                record = json.loads(text)

    Args:
        path: The file, as the user knows it.
        damage: What damaged content raises besides ``ValueError`` and ``EOFError``, such as
            ``SafetensorError``.
        remedy: What to do about damaged content, such as ``copy it again``.
    """
    place = Place(path)
    expected: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, *damage)
    try:
        yield place
    except expected as error:
        if isinstance(error, OSError) and error.strerror:
            message, remedy = f"cannot read {place}: {error.strerror}", ""
        elif isinstance(error, UnicodeDecodeError):
            byte = f"byte 0x{error.object[error.start]:02X} at position {error.start + 1}"
            message = f"{place} is not valid UTF-8 ({byte}): convert it, e.g. "
            message += "iconv -f latin1 -t utf-8"
        else:
            message = f"{place} is damaged: {first_line(error)}"
        raise InputError(f"{message}; {remedy}" if remedy else message) from error


def expand_user(path: str | Path) -> Path:
    """Replaces a leading ``~`` by the home folder."""
    # Not Path.expanduser, which raises if there is no such user, as for a file named ~old.de.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def cache_path(setting: str) -> Path:
    """The folder that ``cache_dir`` names; ``~/.cache`` is ``$XDG_CACHE_HOME`` if that is set."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if setting.startswith("~/.cache/") and Path(base).is_absolute():
        return Path(base) / setting.removeprefix("~/.cache/")
    return expand_user(setting)


def cache_key(*parts: object) -> str:
    """A short hash of JSON values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_once(entry: Path, build: Callable[[Path], None]) -> None:
    """Builds a cache entry unless it exists; a second process waits and then uses the result.

    Args:
        entry: Path of the entry, a folder.
        build: Writes the content of the entry into the folder that it is given, which is renamed
            when it is complete. If it is interrupted, it starts again.

    Raises:
        CacheError: The entry cannot be written.
    """
    try:
        if not entry.exists():
            entry.parent.mkdir(parents=True, exist_ok=True)
            with locked(entry.with_name(f"{entry.name}.lock")):
                if not entry.exists():
                    with new_folder(entry) as unfinished:
                        build(unfinished)
    except OSError as error:
        raise CacheError(
            f"cannot write the cache ({format_os_error(error)}): set XDG_CACHE_HOME "
            "(mt-train: or cache_dir; mtdata: MTDATA) to a writable folder with enough free space"
        ) from error


def how_to_rebuild(entry: Path) -> str:
    """The remedy of a damaged cache entry."""
    return f"delete {entry}, and it will be built again"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Writes a file atomically: yields a temporary path, which is renamed to ``path`` on success.

    The file and its folder are flushed to the disk; after an exception nothing is left.
    """
    temporary = _temporary(path)
    try:
        with errors_naming(path, temporary):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Builds a folder atomically: yields a temporary one, which is renamed to ``path`` on success.

    Its parents are created. After an exception nothing is left; what a killed process has left is
    deleted by the next call. Of two processes without a lock, the first one fails.

    Args:
        path: The folder to build. It may exist if it is empty, or with ``replace``.
        replace: Whether an older folder is deleted, once the new one is complete; never a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    delete_leftovers(path.with_name(glob.escape(path.name)))
    temporary = _temporary(path)
    try:
        with errors_naming(path, temporary):
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            if replace and path.is_dir():
                delete_folder(path)
            temporary.rename(path)
            sync(path.parent)
    finally:  # a full disk needs the space
        shutil.rmtree(temporary, ignore_errors=True)


def delete_folder(path: Path) -> None:
    """Deletes a folder, but no link; if interrupted, it leaves no folder that looks damaged."""
    if not path.is_symlink():
        path.rename(temporary := _temporary(path))
        shutil.rmtree(temporary)


_TEMPORARY = ".{}.mt-tmp-{}"
"""Name of an unfinished file or folder: no other program makes such names."""


def _temporary(path: Path) -> Path:
    # Random: processes in different containers may have the same number.
    return path.with_name(_TEMPORARY.format(path.name, os.urandom(4).hex()))


def delete_leftovers(path: Path) -> None:
    """Deletes what killed processes have left of files and folders that they were writing.

    Args:
        path: Where they would have been; its name may be a pattern.
    """
    for leftover in path.parent.glob(_TEMPORARY.format(path.name, "?" * 8)):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, refusal: str = "") -> Iterator[None]:
    """Holds a lock against other processes.

    Args:
        path: The lock file.
        refusal: The message of the error if another process holds it; without one, this waits.

    Raises:
        InputError: Another process holds the lock, and there is a ``refusal``.
    """
    from filelock import FileLock, Timeout  # translating alone does not need it

    lock = FileLock(path)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        if refusal:
            raise InputError(refusal) from None
        log.info("waiting for another process, which holds %s", path)
        held = lock.acquire()
    with held:
        yield


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Writes an output that the user has named, perhaps with ``~``: yields the path to write to.

    A file is written atomically; the target of a link is replaced, not the link. A pipe or a device
    is written directly.
    """
    path = expand_user(path)
    if is_stream(path):  # not resolved: the target of /dev/stdout may have no path
        with errors_naming(path):
            yield path
        return
    with atomic(path.resolve()) as temporary:
        yield temporary


def ending(path: str) -> str:
    """The suffix of a file in lower case, without that of a compression: ``.po`` of ``a.po.gz``."""
    name = Path(path.lower())
    return (name.with_suffix("") if name.suffix in COMPRESSED else name).suffix


def is_stream(path: Path) -> bool:
    """Whether the path is a pipe or a device such as /dev/null, which must not be replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def errors_naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Makes errors name the path that the caller knows.

    They would name the temporary path that is written first, or, of a full disk, none.
    """
    try:
        yield
    except OSError as error:
        names = [Path(name) for name in (error.filename, error.filename2) if name is not None]
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if (full and not names) or any(name.is_relative_to(temporary or path) for name in names):
            error.filename = str(path)
            del error.filename2  # None would be printed
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, types: Mapping[str, type] | None = None, *, remedy: str = "") -> Any:
    """Content of a JSON file; ``InputError`` if it is missing or damaged.

    Args:
        path: The file.
        types: For an object: the keys that it must have, and the types of their values.
        remedy: What to do about damaged content.
    """
    with reading(path, remedy=remedy):
        content = json.loads(path.read_bytes())
        if types is not None and not isinstance(content, dict):
            raise ValueError("it is not an object")
        for key, kind in (types or {}).items():
            if not isinstance(content.get(key), kind):
                raise ValueError(f"it has no {key} of type {kind.__name__}")
    return content


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flushes a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
