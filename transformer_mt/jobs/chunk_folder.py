"""The folder of finished chunks, from which an interrupted translation of a file resumes."""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
    """``OUTPUT.mt-parts``, next to the output: finished chunks, and the job that they belong to."""

    def __init__(self, target: Path):
        self.path = target.with_name(f"{target.name}.mt-parts")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against other processes; in the end deletes it if it has no chunks."""
        self.path.mkdir(exist_ok=True)
        with files.locked(self.path / _LOCK, self._refuse):
            try:
                yield
            finally:
                # While it is locked: afterwards the folder may belong to another process.
                if self.num_finished() == 0:
                    shutil.rmtree(self.path)

    def _refuse(self) -> NoReturn:
        raise InputError(f"another mt-translate is using {self.path}: wait, or stop it")

    def start(self, job: dict[str, Any], chunk_lines: int) -> int:
        """Starts the job, or resumes it with the finished chunks; returns the lines of a chunk.

        Their number is that of an earlier attempt, perhaps on another device, or ``chunk_lines``.

        Raises:
            InputError: There are finished chunks of a different job.
        """
        if done := self.num_finished():
            known = files.read_json(self.path / _JOB)
            chunk_lines = known.pop(_CHUNK)
            if differ := [key for key in (job | known) if known.get(key) != job.get(key)]:
                raise InputError(
                    f"{self.path} has {done:,} finished chunks of a different job "
                    f"({', '.join(differ)}): repeat that job to resume it, or delete the folder to "
                    "start again"
                )
            done_lines = min(done * chunk_lines, job["lines"])
            log.info("resuming: %s of %s lines are done", f"{done_lines:,}", f"{job['lines']:,}")
        files.delete_leftovers(self.path, "*")
        files.write_json(self.path / _JOB, {**job, _CHUNK: chunk_lines})
        return chunk_lines

    def num_finished(self) -> int:
        """Number of finished chunks."""
        return sum(1 for _ in self.path.glob("*.part"))

    def is_finished(self, number: int) -> bool:
        """Whether a chunk is finished."""
        return self._part(number).exists()

    def write(self, number: int, text: bytes, stats: InputStats) -> None:
        """Writes the output of a chunk, after a line with its statistics."""
        with files.atomic(self._part(number)) as temporary:
            temporary.write_bytes(json.dumps(vars(stats)).encode() + b"\n" + text)

    def join(self, target: Path, chunks: int) -> InputStats:
        """Joins the chunks to the output, and deletes them."""
        stats = InputStats()
        with files.atomic(target) as temporary, temporary.open("wb") as out:
            for number in range(chunks):
                with self._part(number).open("rb") as part:
                    own = InputStats(**json.loads(part.readline()))
                    for kind, count in own.counts.items():
                        stats.add(kind, own.first.get(kind), count)
                    shutil.copyfileobj(part, out)
        for number in range(chunks):
            self._part(number).unlink()
        return stats

    def _part(self, number: int) -> Path:
        return self.path / f"{number:08d}.part"
