"""The folder of finished chunks, from which an interrupted translation of a file resumes."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from transformer_mt import files
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import InputStats

log = logging.getLogger(__name__)

_JOB, _LOCK = "job.json", ".lock"
_CHUNK = "chunk"
"""Key of ``job.json`` for the number of lines of a chunk, which does not change the output."""
_MAX_HEADER_BYTES = 2**16


class ChunkFolder:
    """``OUTPUT.parts``, next to the output: finished chunks, and the job that they belong to."""

    def __init__(self, target: Path):
        self.path = target.with_name(f"{target.name}.parts")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against other processes; in the end deletes it if no chunk is done."""
        try:
            self.path.mkdir(exist_ok=True)
        except FileExistsError:
            raise InputError(
                f"{self.path} is a file, but the folder for finished chunks needs this name: "
                "choose a different output, or rename that file"
            ) from None
        has_job = (self.path / _JOB).exists()
        if not has_job and any(not file.name.startswith(".") for file in self.path.iterdir()):
            raise InputError(
                f"{self.path}, the folder for finished chunks, contains other files: choose a "
                "different output, or move that folder"
            )
        with files.locked(self.path / _LOCK, self._refuse):
            try:
                yield
            finally:
                # While it is locked: afterwards the folder may belong to another process.
                if self.num_finished() == 0:
                    shutil.rmtree(self.path, ignore_errors=True)

    def _refuse(self) -> NoReturn:
        raise InputError(f"another mt-translate is using {self.path}: wait, or stop it")

    def start(self, job: dict[str, Any], chunk_lines: int) -> int:
        """Starts the job, or resumes it with the intact chunks; returns the lines of a chunk.

        Their number is that of an earlier attempt, perhaps on another device, or ``chunk_lines``.

        Raises:
            InputError: There are finished chunks of a different job.
        """
        try:
            known = files.read_json(self.path / _JOB, {})
        except (OSError, ValueError):
            known = {}
        earlier = known.pop(_CHUNK, None)
        same = known == job and isinstance(earlier, int) and earlier > 0
        chunk_lines = earlier if same else chunk_lines
        if (done := self.num_finished()) and not same:
            differ = [key for key in (job | known) if known.get(key) != job.get(key)]
            what = ", ".join(differ) if known else f"{_JOB} is damaged"
            raise InputError(
                f"{self.path} has {done:,} finished chunks of a different job ({what}): repeat "
                "that job to resume it, or delete the folder to start again"
            )
        for file in self.path.iterdir():
            if file.name in (_JOB, _LOCK):
                continue
            if not (same and file.suffix == ".part"):
                file.unlink()
            elif not _is_intact(file):
                log.warning("%s is damaged: its lines are translated again", file)
                file.unlink()
        if not same:
            files.write_json(self.path / _JOB, {**job, _CHUNK: chunk_lines})
        if done := self.num_finished():  # without those that were damaged
            done_lines = min(done * chunk_lines, job["lines"])
            log.info("resuming: %s of %s lines are done", f"{done_lines:,}", f"{job['lines']:,}")
        return chunk_lines

    def num_finished(self) -> int:
        """Number of finished chunks."""
        return sum(1 for _ in self.path.glob("*.part"))

    def claim(self, number: int) -> bool:
        """Claims a chunk; False if it is finished, or another rank has claimed it."""
        part = self._part(number)
        if part.exists():
            return False
        try:
            os.close(os.open(part.with_suffix(".claim"), os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        return True

    def write(self, number: int, text: bytes, stats: InputStats) -> None:
        """Writes the output of a chunk, after a line with its checksum and statistics."""
        header = {"sha256": hashlib.sha256(text).hexdigest(), "stats": asdict(stats)}
        with files.atomic(self._part(number)) as temporary:
            temporary.write_bytes(json.dumps(header).encode() + b"\n" + text)

    def join(self, target: Path, chunks: int) -> InputStats:
        """Joins the chunks to the output, and deletes them."""
        stats = InputStats()
        with files.atomic(target) as temporary, temporary.open("wb") as out:
            for number in range(chunks):
                try:
                    part = self._part(number).open("rb")
                except FileNotFoundError:
                    raise InputError(
                        f"chunk {number} is missing in {self.path}: the input became shorter, or "
                        "the ranks do not share a file system"
                    ) from None
                with part:
                    stats += InputStats(**json.loads(part.readline())["stats"])
                    shutil.copyfileobj(part, out)
        for finished in self.path.glob("*.part"):
            finished.unlink()
        return stats

    def _part(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"


def _is_intact(part: Path) -> bool:
    """Whether a finished chunk has the checksum in its first line."""
    try:
        with files.open_regular(part) as file:
            header = json.loads(file.readline(_MAX_HEADER_BYTES))
            InputStats(**header["stats"])
            return bool(header["sha256"] == hashlib.file_digest(file, "sha256").hexdigest())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
