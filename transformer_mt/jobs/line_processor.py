"""Lines in, one line of output for each, translated or scored."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path

from transformer_mt.data.text.lines import read_lines
from transformer_mt.decode.lines.markup import MarkupTranslator
from transformer_mt.decode.lines.sentences import SentenceTranslator
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError


@dataclass(frozen=True)
class InputStats:
    """Counts of unusual input lines, and the number of the first one of a kind (0: none)."""

    undecodable: int = 0
    first_undecodable: int = 0
    nul: int = 0
    first_nul: int = 0
    cut: int = 0
    short: int = 0

    def __add__(self, other: "InputStats") -> "InputStats":
        """The counts of two parts of one input together."""
        values = {}
        for f in fields(self):
            pair = getattr(self, f.name), getattr(other, f.name)
            first = f.name.startswith("first")
            values[f.name] = min(filter(None, pair), default=0) if first else sum(pair)
        return InputStats(**values)

    def messages(self, max_source_tokens: int) -> Iterator[str]:
        """One line for each kind that occurred."""
        if self.undecodable:
            yield (
                f"{self.undecodable:,} line(s) were not valid UTF-8 (the first: line "
                f"{self.first_undecodable:,}); invalid bytes were read as U+FFFD"
            )
        if self.nul:
            yield (
                f"{self.nul:,} line(s) contain NUL characters (the first: line {self.first_nul:,})"
            )
        if self.cut:
            yield (
                f"{self.cut:,} line(s) were longer than max_source_tokens={max_source_tokens} and "
                "were translated in parts"
            )
        if self.short:
            yield (
                f"{self.short:,} translation(s) have less than a quarter of the tokens of their "
                "line, so text may be missing: try split=sentences"
            )


class AlignedFile:
    """Lines that belong to the lines of the input; only the current part is in memory.

    The file, which the setting ``key`` names, is read twice, first to count its lines.

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
        """Raises ``InputError`` unless the input has as many lines as this file."""
        if num_lines != self._num_lines:
            raise self._mismatch(f"{num_lines:,}")

    def read(self, first_line: int, count: int) -> list[str]:
        """Reads ``count`` lines from number ``first_line`` on; calls must go forward.

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


LineFormat = Callable[[str, Sequence[Translation]], str]
"""(input line, its translations, best first) → output line."""


def format_text(_: str, translations: Sequence[Translation]) -> str:
    """The best translation."""
    return translations[0].text


def format_score(_: str, translations: Sequence[Translation]) -> str:
    """The score of the best translation."""
    return f"{translations[0].score:.6f}"


def format_json(source: str, translations: Sequence[Translation]) -> str:
    """A JSON object with the source and all translations, with scores."""
    row = {"source": source, "translations": [asdict(each) for each in translations]}
    return json.dumps(row, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class LineProcessor:
    """Translates lines, or scores given translations of them."""

    translator: Translator
    nbest: int = 1
    """Number of translations of each line."""
    segment_translator: SentenceTranslator | MarkupTranslator | None = None
    """Translates each line in parts: its sentences, or the text around its markup. The settings
    below are then ignored."""
    prefixes: AlignedFile | None = None
    """Beginnings of the translations."""
    targets: AlignedFile | None = None
    """Translations to score; nothing is translated then."""
    align: bool = False
    """Whether to align the words of a line and its translation."""
    format: LineFormat = format_text

    @property
    def aligned_file(self) -> AlignedFile | None:
        """The file that is read in step with the input."""
        return self.targets or self.prefixes

    def process(self, lines: list[str], first_line: int) -> list[list[Translation]]:
        """The translations of consecutive lines, best first, or the scores of given ones.

        The first of the lines has the number ``first_line`` in the input, from 1.
        """
        if self.segment_translator is not None:
            return self.segment_translator.translate_nbest(lines, self.nbest)
        aligned = None
        if self.aligned_file is not None:
            aligned = self.aligned_file.read(first_line, len(lines))
        if self.targets is not None and aligned is not None:
            return [[scored] for scored in self.translator.score(lines, aligned)]
        return self.translator.translate_nbest(
            lines, self.nbest, prefixes=aligned, align=self.align
        )

    def process_bytes(self, raw: Sequence[bytes], first_line: int) -> tuple[bytes, InputStats]:
        """The output for input lines of any bytes, without line feeds; see ``process``."""
        lines, undecodable, nul = [], [], []
        for number, line in enumerate(raw, first_line):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError:
                lines.append(line.decode(errors="replace"))
                undecodable.append(number)
            if b"\0" in line:
                nul.append(number)
        cut_before, short_before = self.translator.cut_lines, self.translator.short_translations
        processed = self.process(lines, first_line)
        rows = [f"{self.format(*item)}\n" for item in zip(lines, processed, strict=True)]
        return "".join(rows).encode(), InputStats(
            undecodable=len(undecodable),
            first_undecodable=min(undecodable, default=0),
            nul=len(nul),
            first_nul=min(nul, default=0),
            cut=self.translator.cut_lines - cut_before,
            short=self.translator.short_translations - short_before,
        )
