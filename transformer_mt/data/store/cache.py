"""Cache of folders that take long to build, named by a hash of everything they depend on.

An entry is built under a temporary name and renamed when complete. A lock makes a second process
wait and then use the result. A build that was interrupted starts again.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

from transformer_mt import files
from transformer_mt.errors import InputError, format_os_error

log = logging.getLogger(__name__)


def key(*parts: object) -> str:
    """A short hash of JSON values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_once(entry: Path, build: Callable[[Path], None]) -> None:
    """Builds a cache entry unless it exists.

    Args:
        entry: Path of the entry, a folder.
        build: Writes the content of the entry into the folder that it is given.

    Raises:
        InputError: The entry cannot be built or written.
    """
    try:
        if not entry.exists():
            entry.parent.mkdir(parents=True, exist_ok=True)
            with files.locked(entry.with_name(f"{entry.name}.lock"), _log_waiting):
                if not entry.exists():
                    with files.new_folder(entry) as unfinished:
                        build(unfinished)
    except OSError as error:
        raise InputError(
            f"cannot write the cache ({format_os_error(error)}): set cache_dir, or XDG_CACHE_HOME, "
            "to a writable folder with enough free space"
        ) from error


def _log_waiting() -> None:
    log.info("waiting for another process that writes the same cache entry")
