"""Files that are written whole or not at all, and their checksums."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def expand_user(path: str | Path) -> Path:
    """A path whose ``~`` is the home folder."""
    # Not Path.expanduser: it raises where there is no such user, as for a file ~old.de.
    return Path(os.path.expanduser(path))  # noqa: PTH111


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its name once written, and never before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _naming(path):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Where to write what a user wants to have in ``path``.

    For a file that is ``atomic``'s; a link stays one, and what it leads to is written. A pipe or a
    device is written to as it is.
    """
    target = path.resolve()
    if is_stream(target):
        with _naming(target):
            yield target
        return
    with atomic(target) as temporary:
        yield temporary


def is_stream(path: Path) -> bool:
    """Whether no file may take this place: a pipe is there, or a device such as /dev/null."""
    return path.exists() and not path.is_file()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the path in an error of a full disk: one of writing has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a small file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Returns once a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
