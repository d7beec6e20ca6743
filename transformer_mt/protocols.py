"""The interfaces of what the registries name, and the types that these exchange with the core."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from transformer_mt.config import SourceConfig


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
