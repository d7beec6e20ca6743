"""A small file system that can be filled up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = 4 * 2**20


class MountError(Exception):
    """This user cannot mount a file system on this machine."""


@contextmanager
def mounted(path: Path) -> Iterator[Path]:
    """A file system in memory, mounted at ``path`` while the context lasts."""
    path.mkdir(exist_ok=True)
    _mount(path, "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def full(volume: Path, leave: int) -> Iterator[None]:
    """Fills the file system except for ``leave`` bytes while the context lasts."""
    state = os.statvfs(volume)
    ballast = volume / "ballast"
    ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - leave)))
    yield
    ballast.unlink()


def _mount(path: Path, *options: str) -> None:
    try:
        subprocess.run(["mount", *options, str(path)], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise MountError("there is no mount command") from None
    except subprocess.CalledProcessError as error:
        raise MountError(f"mount: {error.stderr.strip()}") from None
