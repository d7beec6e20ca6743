"""The interfaces of what the registries name, and the types that these exchange with the core."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from transformer_mt.config import EvaluateJob, SourceConfig, TrainJob

if TYPE_CHECKING:
    from transformer_mt import Evaluator


class Pair(NamedTuple):
    """A sentence and its translation, each one line of text."""

    src: str
    tgt: str


class Reader(Protocol):
    """A reader of data sources of one kind (``SOURCE_READERS``)."""

    def __call__(
        self,
        source: SourceConfig,
        src_lang: str,
        tgt_lang: str,
        read_blocks: Callable[[str], Iterator[bytes]],
        /,
    ) -> Iterator[Pair]:
        """Streams the pairs of a source.

        Args:
            source: The source.
            src_lang: Its source language.
            tgt_lang: Its target language.
            read_blocks: Reads a file in blocks of bytes, decompressed; raises ``InputError``.

        Raises:
            InputError: The source is missing or damaged, or has the wrong format.
        """


class Download(Protocol):
    """A source that is downloaded before it is read (``SOURCE_DOWNLOADS``).

    It is made from the source and its two languages, which raises ``InputError`` if it is not in
    these.
    """

    def fetch(self, folder: Path, /) -> None:
        """Downloads the source into a new folder.

        Raises:
            InputError: It cannot be downloaded.
        """

    def files(self, folder: Path, /) -> SourceConfig:
        """The source as the files that ``fetch`` has written into a folder.

        Raises:
            InputError: They are damaged.
        """


class SourceNoise(Protocol):
    """A kind of noise on source text (``SOURCE_NOISES``)."""

    def __call__(self, text: str, rng: np.random.Generator, /) -> str:
        """The text with noise, as one line, and not empty unless it was.

        Args:
            text: The text of a line, without its tag.
            rng: A random number generator of its own.
        """


class Results(Protocol):
    """Scores that ``mt-eval`` prints."""

    def to_text(self) -> str:
        """The scores for an 80-column terminal."""

    def to_json(self) -> str:
        """The scores as JSON."""


class OwnScores(Protocol):
    """Scores in place of the usual ones (``EVALUATIONS``); a public function."""

    def __call__(self, job: EvaluateJob, /) -> Results:
        """Computes the scores that a job asks for.

        Raises:
            InputError: As ``evaluate`` does.
        """


class Report(Protocol):
    """What ``mt-eval`` writes besides the scores, or in place of them (``REPORTS``)."""

    def __call__(self, evaluator: "Evaluator", /) -> Iterator[str]:
        """Writes the files that a job names; yields what to print, as soon as it is known.

        Raises:
            InputError: As ``evaluate`` does.
        """


class Picture(Protocol):
    """A picture of the model card (``MODEL_CARD_PICTURES``)."""

    def __call__(self, records: Sequence[dict[str, Any]], /) -> bytes | None:
        """A PNG of the records of ``metrics.jsonl``; None if there is nothing to draw."""


class LoadedFolder(Protocol):
    """A verified model folder that is exported."""

    @property
    def trained(self) -> TrainJob:
        """The job that trained the model."""

    @property
    def tags(self) -> Iterable[str]:
        """Tags that source lines may start with."""

    def write(self, format: str, folder: Path, compute_type: str | None) -> str:
        """Writes the folder in another format of ``EXPORT_FORMATS``."""


class ExportFormat(Protocol):
    """A format of ``mt-export`` (``EXPORT_FORMATS``)."""

    def __call__(self, source: LoadedFolder, folder: Path, compute_type: str | None, /) -> str:
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
