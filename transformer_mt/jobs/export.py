"""Export of a model folder (``mt-export``), and the formats that the core implements."""

import logging
import shutil
from pathlib import Path
from pkgutil import resolve_name

from transformer_mt import checkpoint as ckpt
from transformer_mt import files, run_layout
from transformer_mt.config import ExportJob
from transformer_mt.conversion import marian_tokenizer, transformers_model
from transformer_mt.data.subwords.tokenizer import copy_vocabulary, vocabulary_files
from transformer_mt.decode import engine
from transformer_mt.decode.engines import ctranslate2_conversion
from transformer_mt.decode.engines.ctranslate2_engine import check_available
from transformer_mt.errors import InputError
from transformer_mt.model_folder import ModelFolder
from transformer_mt.protocols import ExportFormat
from transformer_mt.registries import EXPORT_FORMATS

log = logging.getLogger(__name__)


def export(job: ExportJob) -> Path:
    """Converts a model folder to another format; returns the new folder.

    Nothing in the model folder is changed, so that it may be of a training that is running.

    Raises:
        InputError: The model folder or its checkpoint is missing or damaged, the output is not a
            new or empty folder, the format cannot represent the model, or a library is missing.
    """
    output = files.expand_user(job.output)
    target = output.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"output={output} exists and is not an empty folder: choose another")
    source = LoadedFolder(job.model, job.step)
    with files.new_folder(target) as folder:
        kind = source.write(job.format, folder, job.compute_type)
    log.info("exported %s as %s: %s", job.model, kind, output)
    return output


class LoadedFolder(ModelFolder):
    """A model folder with its verified weights.

    Args:
        reference: The folder, or ``hf://ORG/NAME[@REVISION]``.
        step: Load the checkpoint of this update; None: the final model.

    Attributes:
        model: The ``Transformer``, in ``eval`` mode, on the CPU.
        tokenizer: Its vocabulary.
        trained: The ``TrainJob`` that it was trained with.
    """

    def __init__(self, reference: str, step: int | None = None):
        super().__init__(reference, step)
        self.model = self.load_model()

    def write(self, format: str, folder: Path, compute_type: str | None) -> str:
        """Writes the folder in a format; returns what it has written, in words."""
        write: ExportFormat = resolve_name(EXPORT_FORMATS[format])
        return write(self, folder, compute_type)


def to_transformers(source: LoadedFolder, folder: Path, _: str | None) -> str:
    """Writes a folder that Hugging Face transformers loads."""
    model, tokenizer, trained = source.model, source.tokenizer, source.trained
    transformers_model.check_supported(model.config)
    positions = transformers_model.num_positions(model.config, trained.decode)
    settings = transformers_model.model_settings(model, positions)
    generation = transformers_model.generation_settings(trained.decode, positions)
    weights = transformers_model.convert_weights(model, positions)
    converted = marian_tokenizer.tokenizer_files(tokenizer, trained, positions)
    converted |= {"config.json": settings, "generation_config.json": generation}
    for name, content in converted.items():
        files.write_json(folder / name, content)
    models = vocabulary_files(source.path)
    for name, path in zip(run_layout.SIDE_TOKENIZERS, (models[0], models[-1]), strict=True):
        shutil.copyfile(path, folder / name)
    ckpt.save_tensors(weights, folder / run_layout.WEIGHTS, {"format": "pt"})
    if (normalization := trained.data.normalization) != "none":
        unless = " unless its normalize is called for each line" * (normalization == "moses")
        log.warning("MarianTokenizer does not apply data.normalization=%s%s", normalization, unless)
    return str(settings["architectures"][0])


def to_ctranslate2(source: LoadedFolder, folder: Path, compute_type: str | None) -> str:
    """Writes a folder that CTranslate2 loads; it contains the vocabulary."""
    compute_type = compute_type or "float32"
    engine.check_supported(source.model.config)
    check_available("float32", "cpu")
    ctranslate2_conversion.save(folder, source.model, source.tokenizer, source.path, compute_type)
    return f"a CTranslate2 model in {compute_type}"


def to_hub(source: LoadedFolder, folder: Path, _: str | None) -> str:
    """Copies what a translation needs; of final weights also the scores and the model card."""
    shutil.copyfile(source.weights, folder / run_layout.WEIGHTS)
    shutil.copyfile(source.path / run_layout.CONFIG, folder / run_layout.CONFIG)
    copy_vocabulary(source.path, folder)
    for name in (run_layout.TEST_SCORES, run_layout.MODEL_CARD, run_layout.CURVES):
        if source.step is None and (path := source.path / name).exists():
            shutil.copyfile(path, folder / name)
    if not (folder / run_layout.MODEL_CARD).exists():
        log.warning("no model card is exported: only the final model of a finished run has one")
    return "a model repository"
