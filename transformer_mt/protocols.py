"""The interfaces of what the registries name, and the types that these exchange with the core."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from transformer_mt.config import SourceConfig, TrainJob


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


class LoadedFolder(Protocol):
    """A verified model folder that is exported."""

    @property
    def trained(self) -> TrainJob:
        """The job that trained the model."""

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language, without script and region."""

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
