"""Partial output of a file translation, from which the same command resumes."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_mt import files
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import InputStats

log = logging.getLogger(__name__)


@contextmanager
def partial_output(
    target: Path, job: dict[str, Any], total: int
) -> Iterator[tuple[InputStats, Callable[[bytes], None]]]:
    """Collects the output of finished chunks, and writes it to ``target`` once it is complete.

    It is in ``OUTPUT.mt-partial``, next to the output, with the job that it belongs to.

    Args:
        target: The output.
        job: What it depends on, as JSON values.
        total: Number of lines of the input.

    Yields:
        Counts of the finished lines, which the caller continues; and a function that appends the
        output for lines that have been counted.
    """
    folder = target.with_name(f"{target.name}.mt-partial")
    path, record = folder / "output", folder / "state.json"

    def append(text: bytes) -> None:
        with files.errors_naming(path):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        files.write_json(record, {"bytes": file.tell(), "stats": vars(stats), "job": job})

    folder.mkdir(exist_ok=True)
    refusal = f"another mt-translate is using {folder}: wait, or stop it"
    with files.locked(folder / ".lock", refusal):
        stats, size, kept = InputStats(), 0, True
        if record.exists():
            state = files.read_json(record, remedy=f"delete {folder}")
            known, size, stats = state["job"], state["bytes"], InputStats(**state["stats"])
            if differ := [key for key in (job | known) if known.get(key) != job.get(key)]:
                raise InputError(
                    f"{folder} has {stats.lines:,} finished lines of a different job "
                    f"({', '.join(differ)}): repeat that job to resume it, or delete the folder to "
                    "start again"
                )
            log.info("resuming: %s of %s lines are done", f"{stats.lines:,}", f"{total:,}")
        try:
            with path.open("r+b" if size else "wb") as file:
                file.truncate(size)  # removes what a killed process has not finished
                file.seek(size)
                yield stats, append
            with files.atomic(target) as temporary:
                shutil.copyfile(path, temporary)
            kept = False
        except KeyboardInterrupt:
            if stats.lines:
                lines = f"{stats.lines:,} of {total:,} lines are kept in {folder}"
                log.info("Stopped. %s. Run the same command to resume.", lines)
            raise
        finally:
            if not (kept and stats.lines):
                # While it is locked: afterwards the folder may belong to another process.
                shutil.rmtree(folder)
