"""A file with one line for each line of the input, read in step with it."""

import hashlib
from itertools import islice
from pathlib import Path

from transformer_mt.data.text.lines import read_lines
from transformer_mt.errors import InputError


class AlignedFile:
    """Lines that belong to those of the input, in memory for a stretch at a time.

    Args:
        key: The setting that names the file.
        path: The file; it is read once to count its lines, and once more to use them.

    Raises:
        InputError: There is no such file, or it is damaged or not UTF-8.
    """

    def __init__(self, key: str, path: Path):
        self._name = f"{key}={path}"
        if path.exists() and not path.is_file():
            raise InputError(f"{self._name} must be a file, because it is read twice")
        self._lines, digest = 0, hashlib.sha256()
        for line in read_lines(path):
            self._lines += 1
            digest.update(line.encode() + b"\n")
        self.checksum = digest.hexdigest()
        """Of its lines."""
        self._left, self._next = read_lines(path), 1

    def check(self, lines: int) -> None:
        """Refuses an input of another number of lines.

        Raises:
            InputError: That is so.
        """
        if lines != self._lines:
            raise InputError(
                f"{self._name} has {self._lines:,} line(s) and the input {lines:,}: "
                "it must have one for each line of the input"
            )

    def take(self, first: int, number: int) -> list[str]:
        """The lines from number ``first`` on; no call may go back behind an earlier one.

        Raises:
            InputError: The file ends before.
        """
        skipped = first - self._next
        lines = list(islice(self._left, skipped, skipped + number))
        self._next = first + number
        if len(lines) < number:
            raise InputError(
                f"{self._name} has {self._lines:,} line(s) and the input more: "
                "it must have one for each line of the input"
            )
        return lines
