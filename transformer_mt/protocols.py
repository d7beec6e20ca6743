"""The interfaces of what the registries name, and the types that these exchange with the core."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from transformer_mt.config import SourceConfig, TrainJob, TranslateJob
from transformer_mt.config.checks import dotted
from transformer_mt.files import write_text

if TYPE_CHECKING:
    from transformer_mt import LoadedFolder


class Pair(NamedTuple):
    """A sentence and its translation, each one line of text."""

    src: str
    tgt: str


ReadBlocks = Callable[[str], Iterator[bytes]]
"""Reads a file in blocks of bytes, decompressed; raises ``InputError``."""


class Reader(Protocol):
    """A reader of data sources of one kind (``SOURCE_READERS``)."""

    def __call__(
        self, source: SourceConfig, src_lang: str, tgt_lang: str, read_blocks: ReadBlocks, /
    ) -> Iterator[Pair]:
        """Streams the pairs of a source.

        Args:
            source: The source.
            src_lang: Its source language.
            tgt_lang: Its target language.
            read_blocks: Reads a local file.

        Raises:
            InputError: The source is missing or damaged, or has the wrong format.
        """


SPACES = " \t\n\f\r"
"""White space as HTML defines it: what separates words, and may be collapsed. No-break spaces and
the like belong to a word, as in the pieces of a vocabulary."""
WORD = re.compile(f"[^{SPACES}]+")
"""A word, wherever words are counted, in the source as in the translation."""


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    """The translation, detokenised; one line."""
    score: float
    """Length-normalised log-probability, summed over the sentences of a line; 0 for an empty
    line."""
    tokens: int
    """Number of tokens, end symbols not counted."""
    log_prob: float = 0.0
    """Log-probability of all pieces, end symbols included."""
    pieces: list[str] = field(default_factory=list)
    """The tokens and, after each part of the line, an end symbol."""
    piece_log_probs: list[float] = field(default_factory=list)
    """Log-probability of each piece; empty if CTranslate2 translated, which has none."""
    alignment: list[tuple[int, int]] | None = None
    """If requested, for each word of the translation the source word that it is linked to. Words
    are counted from 0 and separated by spaces, not by no-break spaces; a tag is not a word. None
    if a sentence was translated in parts, or if normalisation changes the words of the line."""

    @classmethod
    def copied(cls, text: str, align: bool) -> "Translation":
        """Text as its own translation, with or without an alignment."""
        words = range(len(WORD.findall(text)))
        return cls(text, 0.0, 0, alignment=list(zip(words, words, strict=True)) if align else None)

    @classmethod
    def joined(
        cls, parts: Sequence["Translation"], space: str, words: Sequence[int] = ()
    ) -> "Translation":
        """The translation of a line from the translations of its parts.

        Args:
            parts: The translations of the parts.
            space: What joins their texts.
            words: Index of the word of the line with which each part starts. Without them, or if
                a part has no alignment, the line has none.
        """
        links, total, text = list[tuple[int, int]](), 0, ""
        for part, word in zip(parts, words, strict=False):
            first = total - (not space and text == text.rstrip() != "")  # the last word goes on
            text += part.text
            links += [(i + word, j + first) for i, j in part.alignment or ()]
            total = max(total, first + len(WORD.findall(part.text)))
        is_aligned = words and all(part.alignment is not None for part in parts)
        return cls(
            space.join(part.text for part in parts if part.text),
            sum((part.score for part in parts), 0.0),
            sum(part.tokens for part in parts),
            sum((part.log_prob for part in parts), 0.0),
            [piece for part in parts for piece in part.pieces],
            [value for part in parts for value in part.piece_log_probs],
            links if is_aligned else None,
        )


class LineTranslator(Protocol):
    """Translates lines: a ``Translator``, or a wrapper of one."""

    def translate_nbest(self, lines: Sequence[str], nbest: int, /) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first."""


class TranslatedDocument(NamedTuple):
    """A translation of a document."""

    content: bytes
    num_translated: int
    """Number of texts that have been translated."""
    warnings: list[str]
    """What to check in the translation."""


class Document(Protocol):
    """A document in a format of ``DOCUMENT_FORMATS``; made from a job, and used once."""

    unplaced: list[Any]
    """Filled by the translator of its lines (``MARKUP``): what it could not place of their markup,
    before ``write``."""

    def __init__(self, job: TranslateJob, /) -> None: ...

    def read(self, content: bytes, src_lang: str, tgt_lang: str, /) -> Sequence[str]:
        """The lines to translate.

        Raises:
            InputError: The document is damaged, or not in these languages.
        """

    def write(self, translations: Sequence[str], /) -> TranslatedDocument:
        """The document with translations of its lines."""


class PairNoise(Protocol):
    """Noise on some of the training pairs (``PAIR_NOISE``)."""

    def __call__(self, pair: Pair, rng: np.random.Generator, /) -> Pair:
        """Draws what becomes of a pair: the same pair, or one with noise.

        Args:
            pair: A training pair, without the tag of its source.
            rng: A random number generator of its own.

        Returns:
            Two lines, neither of which is empty unless the given one is.
        """


class ExportFormat(Protocol):
    """A format of ``mt-export`` (``EXPORT_FORMATS``)."""

    def __call__(self, source: "LoadedFolder", folder: Path, compute_type: str | None, /) -> str:
        """Writes a model folder in this format.

        Args:
            source: The model folder.
            folder: An empty folder to write to.
            compute_type: Data type of the weights; None: the default of the format.

        Returns:
            What it has written, in words.

        Raises:
            InputError: The format cannot represent the model, or a library is missing.
        """


@dataclass(frozen=True)
class TrackedRun:
    """A run that a tracker records."""

    job: TrainJob
    """Its configuration."""
    steps_done: int
    """Updates of earlier starts: what was recorded of later ones is repeated."""
    folder: Path
    """Folder for local files of the tracker; ``entry`` makes it."""

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return Path(self.job.run_dir).name

    @property
    def settings(self) -> dict[str, float | str]:
        """The settings by dotted names; all but numbers are text."""
        values = dotted(asdict(self.job)).items()
        return {key: x if type(x) in (int, float) else str(x) for key, x in values}

    def entry(self) -> str:
        """Identifier of the run for the tracker: random, and the same for all starts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (path := self.folder / "entry").exists():
            write_text(path, secrets.token_hex(4))
        return path.read_text("ascii")


class Tracker(Protocol):
    """An experiment tracker (``TRACKERS``), made from a ``TrackedRun`` when a run starts.

    It writes in the background. It may raise and print anything: with its first exception it is
    switched off.
    """

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds finite values of ``train``, ``valid`` or ``test`` by their names."""

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds sample translations: names of columns, and rows of text."""

    def close(self, finished: bool) -> None:
        """Writes the rest, and records whether the run has finished."""
