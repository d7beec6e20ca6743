"""Layouts of windows on disk: one rank computes a layout, and the others read it."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from transformer_mt import files
from transformer_mt.data.batching.plan import Indices

_PREFIX = "windows-"
_TIMEOUT = 60.0
"""Seconds to wait for another rank, which may hang, before computing a layout as well."""


class WindowLayout(NamedTuple):
    """Division of the pairs of a window into the chunks of its updates."""

    order: npt.NDArray[Any]
    """[pairs] positions of the pairs in the runs of the window, chunk by chunk."""
    boundaries: Indices
    """[chunks + 1] boundaries of the chunks."""
    batches: Indices
    """[updates, chunks per update] chunk numbers of each update."""


class LayoutCache:
    """Layouts by number of the window, each a file that the ranks of a run share.

    Without a writable folder, or if another rank takes more than a minute, a rank computes for
    itself.

    Args:
        folder: Folder of the token store.
        key: What the layouts are a function of, as a short hash.
    """

    def __init__(self, folder: Path, key: str):
        self._folder = folder / f"{_PREFIX}{key}"

    def get(self, number: int, compute: Callable[[], WindowLayout]) -> WindowLayout:
        """Reads a layout; the first rank to ask computes and writes it while the others wait."""
        path = self._path(number)
        with ExitStack() as stack:
            with suppress(OSError, NotImplementedError):  # not writable, no locks, or a timeout
                self._folder.mkdir(exist_ok=True)
                # The system releases the lock of a process that dies.
                stack.enter_context(FileLock(path.with_suffix(".lock"), timeout=_TIMEOUT))
            # A damaged file is written again.
            with (
                suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
                np.load(path) as arrays,
            ):
                return WindowLayout(*(arrays[name] for name in WindowLayout._fields))
            layout = compute()
            with suppress(OSError), files.atomic(path) as temporary, temporary.open("wb") as file:
                np.savez(file, **layout._asdict())
        return layout

    def remove(self, number: int) -> None:
        """Removes a layout that all ranks have read."""
        with suppress(OSError):
            self._path(number).unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes all layouts; a rank that still needs one computes it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.npz"


def remove_leftovers(folder: Path) -> None:
    """Removes the layouts of killed runs from the folder of a token store.

    A run verifies the tokens of each window that it lays out, so it must not take older layouts.
    """
    for leftover in folder.glob(f"{_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
