"""Schema of ``mt-export``."""

from dataclasses import dataclass

from transformer_mt.config.checks import choice, require
from transformer_mt.config.decode import COMPUTE_TYPES

FORMATS = ("transformers", "ctranslate2", "hub")
"""Values of ``format``; they are registered in ``jobs.export``."""


@dataclass(kw_only=True, frozen=True)
class ExportJob:
    """Settings of ``mt-export``."""

    model: str = ""
    """Model folder; required."""
    format: str = ""
    """``transformers``, ``ctranslate2`` or ``hub``; required. ``transformers``: a folder that
    Hugging Face transformers loads without this package. ``ctranslate2``: a folder that CTranslate2
    loads. ``hub``: the files that a translation needs and a model card, to upload to the Hugging
    Face Hub."""
    output: str = ""
    """Folder to write; required. It must be new or empty."""
    compute_type: str | None = None
    """Data type of the weights, for ``ctranslate2`` only: ``float32`` (null), ``int8``, ``float16``
    or ``bfloat16``."""

    def __post_init__(self) -> None:
        require(bool(self.model), "no model given: set model=FOLDER (see --help)")
        require(bool(self.format), f"no format given: set format={'|'.join(FORMATS)}")
        choice("format", self.format, *FORMATS)
        require(bool(self.output), "no output given: set output=FOLDER")
        if self.compute_type is not None:
            choice("compute_type", self.compute_type, *COMPUTE_TYPES)
            message = f"compute_type={self.compute_type} applies to format=ctranslate2 only"
            require(self.format == "ctranslate2", message)
