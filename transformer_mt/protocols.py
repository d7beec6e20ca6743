"""The interfaces of what the registries name, and the types that these exchange with the core."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from transformer_mt.config import TrainJob


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
