"""Folders that take long to make, kept under names that say what they depend on.

A folder is written under a temporary name and renamed when whole. A lock makes a second process
wait and then find it. What is half done lies in a folder beside it, and may be gone on from.
"""

import errno
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from filelock import FileLock, Timeout

from transformer_mt import files
from transformer_mt.data.store.workers import KilledError
from transformer_mt.errors import InputError, format_os_error

_OF_THE_FOLDER = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
}

log = logging.getLogger(__name__)


def key(*parts: object) -> str:
    """A short fingerprint of JSON values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def half_done(entry: Path) -> Path:
    """The folder of what an entry is made from; it outlives a process that is killed."""
    return entry.with_suffix(".shards")


def make(entry: Path, build: Callable[[Path], None], cancel: Event | None = None) -> None:
    """Makes a cache entry, if it is not there yet.

    Args:
        entry: A folder.
        build: Fills the folder it is given, which becomes the entry.
        cancel: Set by another thread to give up waiting for a process that is making it.

    Raises:
        InputError: It cannot be built, or not be written.
        CancelledError: ``cancel`` was set.
    """
    try:
        if entry.exists():
            shutil.rmtree(half_done(entry), ignore_errors=True)  # a kill may have left it
            return
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _locked(entry, cancel):
            if not entry.exists():
                _make_alone(entry, build)
            shutil.rmtree(half_done(entry), ignore_errors=True)
    except OSError as error:
        if error.errno not in _OF_THE_FOLDER:
            raise InputError(f"cannot prepare the data ({format_os_error(error)})") from error
        raise InputError(
            f"cannot prepare the data ({error.strerror}: {entry.parent}): set cache_dir to a "
            "folder that may be written and has room"
        ) from error


def remove(entry: Path) -> None:
    """Removes a cache entry, if it is there, at one stroke: never is half of it found."""
    doomed = entry.with_suffix(".removed")
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(OSError):  # another process may be at it
        entry.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    entry.with_suffix(".lock").unlink(missing_ok=True)


def _make_alone(entry: Path, build: Callable[[Path], None]) -> None:
    unfinished = entry.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        build(unfinished)
        for file in unfinished.iterdir():
            files.sync(file)
        unfinished.rename(entry)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, InputError) and not isinstance(error, KilledError):
            # The input must change, and with it the name of the entry: nobody would go on.
            shutil.rmtree(half_done(entry), ignore_errors=True)
        raise


@contextmanager
def _locked(entry: Path, cancel: Event | None) -> Iterator[None]:
    lock = FileLock(entry.with_suffix(".lock"))
    said = False
    while not lock.is_locked:
        try:
            lock.acquire(timeout=1)
        except Timeout:
            if cancel and cancel.is_set():
                raise CancelledError from None
            if not (cancel or said):
                log.info("waiting for another process, which prepares the same data")
            said = True
    try:
        yield
    finally:
        lock.release()
