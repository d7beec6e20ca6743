"""Settings of mt-export."""

from dataclasses import dataclass

from transformer_mt.config.checks import Checked, one_of, require
from transformer_mt.errors import UsageError
from transformer_mt.registries import EXPORT_FORMATS, QUANTIZED_FORMATS


@dataclass(kw_only=True, frozen=True)
class ExportJob(Checked):
    """Settings of ``mt-export``."""

    model: str = ""
    """Model folder, or ``hf://ORG/NAME[@REVISION]``; required."""
    format: str = one_of(EXPORT_FORMATS, default="")
    """Write the model for this program or library; required. ``transformers``: a folder that
    Hugging Face transformers loads without this package. ``ctranslate2``: a folder that CTranslate2
    loads. ``argos``: a package that Argos Translate and LibreTranslate install. ``browser``: a
    folder that optimum converts to ONNX for transformers.js. ``hub``: the files that a translation
    needs and a model card, to upload to the Hugging Face Hub."""
    step: int | None = None
    """Export the checkpoint of this update, also of a running training. null: the final model."""
    output: str = ""
    """Folder to write; required. It must be new or empty."""
    compute_type: str | None = one_of("float32", "bfloat16", "int8", "float16", default=None)
    """Store the weights in this type, for ``format=ctranslate2`` and ``argos``. null: float32, for
    argos int8."""

    def __post_init__(self) -> None:
        require(bool(self.model), "no model given: set model=FOLDER (see --help)", UsageError)
        formats = "|".join(EXPORT_FORMATS)
        require(bool(self.format), f"no format given: set format={formats}", UsageError)
        super().__post_init__()
        require(bool(self.output), "no output given: set output=FOLDER", UsageError)
        require(
            self.compute_type is None or self.format in QUANTIZED_FORMATS,
            f"compute_type={self.compute_type} applies to "
            f"format={' and '.join(QUANTIZED_FORMATS)} only",
        )
