"""``AlignedFile``: a file with one line for each line of the input, read in step with it."""

import hashlib
from itertools import islice
from pathlib import Path

from transformer_mt.data.text.lines import read_lines
from transformer_mt.errors import InputError


class AlignedFile:
    """Lines that belong to the lines of the input; only the current part is in memory.

    Args:
        key: The setting that names the file.
        path: The file; it is read twice, first to count its lines.

    Raises:
        InputError: The file is missing, damaged or not UTF-8.
    """

    def __init__(self, key: str, path: Path):
        self._name = f"{key}={path}"
        if path.exists() and not path.is_file():
            raise InputError(f"{self._name} must be a file, because it is read twice")
        self._num_lines, digest = 0, hashlib.sha256()
        for line in read_lines(path):
            self._num_lines += 1
            digest.update(line.encode() + b"\n")
        self.checksum = digest.hexdigest()
        """SHA-256 of its lines."""
        self._lines, self._next_line = read_lines(path), 1

    def check_line_count(self, num_lines: int) -> None:
        """Check that the input has as many lines as this file.

        Raises:
            InputError: It has not.
        """
        if num_lines != self._num_lines:
            raise self._mismatch(f"{num_lines:,}")

    def read(self, first_line: int, count: int) -> list[str]:
        """Read ``count`` lines from number ``first_line`` on; calls must go forward only.

        Raises:
            InputError: The file is shorter.
        """
        skipped = first_line - self._next_line
        lines = list(islice(self._lines, skipped, skipped + count))
        self._next_line = first_line + count
        if len(lines) < count:
            raise self._mismatch("more")
        return lines

    def _mismatch(self, num_lines: str) -> InputError:
        return InputError(
            f"{self._name} has {self._num_lines:,} line(s), but the input has {num_lines}: "
            "both must have the same number of lines"
        )
