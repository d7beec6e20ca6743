"""The folder of finished chunks, from which an interrupted translation of a file resumes."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from transformer_mt import files
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import InputStats

log = logging.getLogger(__name__)

_JOB, _LOCK = "job.json", ".lock"
_CHUNK = "chunk"
"""Key of ``job.json`` for the number of lines of a chunk, which does not change the output."""


class ChunkFolder:
    """``OUTPUT.parts``, next to the output: finished chunks, and the job that they belong to.

    Files that are not its own are left alone.
    """

    def __init__(self, target: Path):
        self.path = target.with_name(f"{target.name}.parts")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against other processes; in the end deletes it if no chunk is done."""
        self.path.mkdir(exist_ok=True)
        with files.locked(self.path / _LOCK, self._refuse):
            try:
                yield
            finally:
                # While it is locked: afterwards the folder may belong to another process.
                if self.num_finished() == 0:
                    self._delete(".*.tmp", _JOB, _LOCK)
                    with suppress(OSError):  # it has other files
                        self.path.rmdir()

    def _refuse(self) -> NoReturn:
        raise InputError(f"another mt-translate is using {self.path}: wait, or stop it")

    def _delete(self, *patterns: str) -> None:
        for pattern in patterns:
            for file in self.path.glob(pattern):
                file.unlink()

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
        earlier = known.pop(_CHUNK, chunk_lines)
        if known == job:
            chunk_lines = earlier
        elif done := self.num_finished():
            differ = [key for key in (job | known) if known.get(key) != job.get(key)]
            raise InputError(
                f"{self.path} has {done:,} finished chunks of a different job "
                f"({', '.join(differ)}): repeat that job to resume it, or delete the folder to "
                "start again"
            )
        self._delete(".*.tmp")
        for part in self.path.glob("*.part"):
            if not _is_intact(part):
                log.warning("%s is damaged: its lines are translated again", part)
                part.unlink()
        files.write_json(self.path / _JOB, {**job, _CHUNK: chunk_lines})
        if done := self.num_finished():  # without those that were damaged
            done_lines = min(done * chunk_lines, job["lines"])
            log.info("resuming: %s of %s lines are done", f"{done_lines:,}", f"{job['lines']:,}")
        return chunk_lines

    def num_finished(self) -> int:
        """Number of finished chunks."""
        return sum(1 for _ in self.path.glob("*.part"))

    def is_finished(self, number: int) -> bool:
        """Whether a chunk is finished."""
        return self._part(number).exists()

    def write(self, number: int, text: bytes, stats: InputStats) -> None:
        """Writes the output of a chunk, after a line with its checksum and statistics."""
        header = {"sha256": hashlib.sha256(text).hexdigest(), "stats": vars(stats)}
        with files.atomic(self._part(number)) as temporary:
            temporary.write_bytes(json.dumps(header).encode() + b"\n" + text)

    def join(self, target: Path, chunks: int) -> InputStats:
        """Joins the chunks to the output, and deletes them."""
        stats = InputStats()
        with files.atomic(target) as temporary, temporary.open("wb") as out:
            for number in range(chunks):
                with self._part(number).open("rb") as part:
                    own = json.loads(part.readline())["stats"]
                    for kind, count in own["counts"].items():
                        stats.add(kind, own["first"].get(kind), count)
                    shutil.copyfileobj(part, out)
        self._delete("*.part")
        return stats

    def _part(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"


def _is_intact(part: Path) -> bool:
    """Whether a finished chunk has the checksum in its first line."""
    try:
        with part.open("rb") as file:
            header = json.loads(file.readline())
            return bool(header["sha256"] == hashlib.file_digest(file, "sha256").hexdigest())
    except (ValueError, KeyError, TypeError):
        return False
