"""Atomic writes, bounded reads of untrusted files, checksums and paths."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path


def expand_user(path: str | Path) -> Path:
    """Replace a leading ``~`` by the home folder.

    Raises:
        OSError: The user has none; a folder that is named ``~`` would be dangerous to remove.
    """
    # Not Path.expanduser, which raises if there is no such user, as for a file named ~old.de.
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111
    if str(path).startswith("~") and expanded.parts[0] == "~":
        raise OSError(errno.ENOENT, "there is no home folder, set HOME", str(path))
    return expanded


def cache_path(setting: str) -> Path:
    """The folder that ``cache_dir`` names; ``~/.cache`` is ``$XDG_CACHE_HOME`` if that is set."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if setting.startswith("~/.cache/") and Path(base).is_absolute():
        return Path(base) / setting.removeprefix("~/.cache/")
    return expand_user(setting)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path, which is renamed to ``path`` on success.

    The file and its folder are flushed to the disk; after an exception nothing is left.
    """
    # Random: processes in different containers may have the same number.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with _named_errors(path):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Write a folder atomically: yields a temporary one, which is renamed to ``path`` on success.

    Its parents are created; ``path`` may exist if it is empty. After an exception nothing is left.

    Raises:
        OSError: Another process is writing the folder.
    """
    from filelock import FileLock, Timeout  # only exports need it

    target = path.resolve()
    temporary = target.with_name(f".{target.name}.tmp")
    lock = temporary.with_suffix(".lock")
    target.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise OSError(errno.EBUSY, "another process is writing this folder", str(path)) from None
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
        temporary.mkdir()
        with _named_errors(path):
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            temporary.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        lock.unlink(missing_ok=True)
        held.release()


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Write an output that the user has named: yields the path to write to.

    A file is written atomically; the target of a link is replaced, not the link. A pipe or a device
    is written directly.
    """
    target = path.resolve()
    if is_stream(target):
        with _named_errors(target):
            yield target
        return
    with atomic(target) as temporary:
        yield temporary


def is_stream(path: Path) -> bool:
    """Whether the path is a pipe or a device such as /dev/null, which must not be replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Add the path to the error of a full disk, which does not name it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def open_regular(path: Path, max_bytes: int | None = None) -> BufferedReader:
    """Open a file of a folder that is not trusted; a link to a file counts as that file.

    Raises:
        OSError: It cannot be read, is larger than ``max_bytes``, or is not a regular file: reading
            a pipe or a device may never end.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if max_bytes is not None and status.st_size > max_bytes:
        message = f"its size is {status.st_size:,} bytes, the limit {max_bytes:,}"
        raise OSError(errno.EFBIG, message, str(path))
    return path.open("rb")


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Content of a file; see ``open_regular``."""
    with open_regular(path, max_bytes) as file:
        return file.read(max_bytes)


def sha256(path: Path) -> str:
    """SHA-256 of a regular file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
