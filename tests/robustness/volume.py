"""A small file system that can be filled up and made read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

SIZE = 4 * 2**20


class MountError(Exception):
    """This user cannot mount a file system on this machine."""


class Volume:
    """A file system in memory, mounted at ``path`` while the context lasts."""

    def __init__(self, path: Path):
        self.path = path
        self._ballast = path / "ballast"

    def __enter__(self) -> "Volume":
        self.path.mkdir(exist_ok=True)
        self._mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, leave: int) -> None:
        """Fills the file system except for ``leave`` bytes."""
        state = os.statvfs(self.path)
        self._ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - leave)))

    def free(self) -> None:
        """Frees the space again."""
        self._ballast.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Makes it read-only while the context lasts."""
        self._mount("-o", "remount,ro")
        try:
            yield
        finally:
            self._mount("-o", "remount,rw")

    def _mount(self, *options: str) -> None:
        try:
            subprocess.run(
                ["mount", *options, str(self.path)], check=True, capture_output=True, text=True
            )
        except FileNotFoundError:
            raise MountError("there is no mount command") from None
        except subprocess.CalledProcessError as error:
            raise MountError(f"mount: {error.stderr.strip()}") from None
