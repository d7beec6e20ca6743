"""What is finished of the translation of a file, kept until all is, for the same command."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from transformer_mt import files
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import InputStats

log = logging.getLogger(__name__)


class PartialOutput:
    """``OUTPUT.mt-partial``, next to the output: its beginning, and the job that this belongs to.

    Args:
        folder: The folder, which is locked; see ``partial_output``.
        job: What the output depends on, as JSON values.
        total: Number of lines of the input.
    """

    def __init__(self, folder: Path, job: dict[str, Any], total: int):
        self._job, self._state, self.path = job, folder / "state.json", folder / "output"
        self.stats, size = InputStats(), 0
        """Lines whose output is there; whoever translates counts them before ``append``."""
        if self._state.exists():
            state = files.read_json(self._state)
            known, size, self.stats = state["job"], state["bytes"], InputStats(**state["stats"])
            if differ := [key for key in (job | known) if known.get(key) != job.get(key)]:
                raise InputError(
                    f"{folder} has {self.stats.lines:,} finished lines of a different job "
                    f"({', '.join(differ)}): repeat that job to resume it, or delete the folder to "
                    "start again"
                )
            log.info("resuming: %s of %s lines are done", f"{self.stats.lines:,}", f"{total:,}")
        self._file = self.path.open("r+b" if size else "wb")
        self._file.truncate(size)  # removes what a killed process has not finished
        self._file.seek(size)

    def append(self, text: bytes) -> None:
        """Appends the output for the next lines, and then records that it is there."""
        with files.errors_naming(self.path):
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        state = {"bytes": self._file.tell(), "stats": vars(self.stats), "job": self._job}
        files.write_json(self._state, state)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@contextmanager
def partial_output(target: Path, job: dict[str, Any], total: int) -> Iterator[PartialOutput]:
    """Holds what is finished of an output until all is; then writes it to ``target``.

    Args:
        target: The output.
        job: What it depends on, as JSON values.
        total: Number of lines of the input.
    """
    folder = target.with_name(f"{target.name}.mt-partial")

    def refuse() -> NoReturn:
        raise InputError(f"another mt-translate is using {folder}: wait, or stop it")

    folder.mkdir(exist_ok=True)
    with files.locked(folder / ".lock", refuse):
        output = PartialOutput(folder, job, total)
        kept = True
        try:
            yield output
            with files.atomic(target) as temporary:
                shutil.copyfile(output.path, temporary)
            kept = False
        except KeyboardInterrupt:
            if output.stats.lines:
                lines = f"{output.stats.lines:,} of {total:,} lines are kept in {folder}"
                log.info("Stopped. %s. Run the same command to resume.", lines)
            raise
        finally:
            output.close()
            if not (kept and output.stats.lines):
                # While it is locked: afterwards the folder may belong to another process.
                shutil.rmtree(folder)
