"""Models converted to CTranslate2: where they are kept, and which of them may be used.

This module does not load PyTorch: the weights are needed only where there is no conversion yet.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt import files, run_layout
from transformer_mt.config import ModelConfig
from transformer_mt.data.subwords.tokenizer import vocabulary_checksum
from transformer_mt.decode.engines.engine import UnavailableError
from transformer_mt.errors import InputError

if TYPE_CHECKING:  # which imports this module
    from transformer_mt.decode.engines.selection import EngineRequest

SINUSOIDS = 2048
"""Number of sinusoidal positions of a converted model; the model itself has no limit."""

_VERSION = 2
"""Version of the conversion; when it changes, models are converted again."""
_MADE_FROM = "made_from.json"
_MAX_WEIGHTS_BYTES = 2**36
"""Larger weights are not read: a sparse file has any size."""


def check_shape(config: ModelConfig) -> None:
    """Raises ``UnavailableError`` if CTranslate2 does not support the shape of a model."""
    for name, size in (("d_k", config.key_size), ("d_v", config.value_size)):
        if size * config.num_heads != config.d_model:
            raise UnavailableError(
                f"CTranslate2 does not support this model: model.{name}={size} is not d_model / "
                f"num_heads = {config.d_model} / {config.num_heads}; translate with engine=torch"
            )


def num_positions(config: ModelConfig) -> int:
    """Maximum length of a sequence, start or end symbol included, of a converted model."""
    return config.max_positions if config.positions == "learned" else SINUSOIDS


def checksum(folder: Path, config: ModelConfig, weights: Path) -> str:
    """SHA-256 of a model: of its weights, its shape and its vocabulary.

    Raises:
        OSError: A file cannot be read, is not a regular file, or is too large.
    """
    files.open_regular(weights, _MAX_WEIGHTS_BYTES).close()
    parts = [files.sha256(weights), vocabulary_checksum(folder), asdict(config)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find_or_convert(request: "EngineRequest", compute_type: str) -> tuple[Path, str | None]:
    """Converts the model of a request, unless there is a conversion of the same weights.

    It is stored in ``ctranslate2/COMPUTE_TYPE`` in the model folder or, where that cannot be
    written or has links, such as in the Hugging Face cache, in our cache.

    Returns:
        The folder of the converted model, and a message for the user if it was converted now.

    Raises:
        UnavailableError: The converted model cannot be stored anywhere.
        InputError: The model cannot be loaded, or was changed meanwhile.
    """
    model_checksum = request.checksums[0]
    record = {"model": model_checksum, "version": _VERSION}
    in_folder = request.folder / run_layout.CTRANSLATE2
    in_cache = files.cache_path(request.cache_dir) / "ctranslate2" / model_checksum[:16]
    links = (in_folder, in_folder / compute_type, request.folder / run_layout.WEIGHTS)
    obstacles: list[str] = []
    for place in [in_cache] if any(map(Path.is_symlink, links)) else [in_folder, in_cache]:
        target = place / compute_type
        if _was_made_from(record, target):  # also where nothing can be written
            return target, None
        try:
            place.mkdir(parents=True, exist_ok=True)
            with files.locked(place / ".lock"):
                if _was_made_from(record, target):  # another process was faster
                    return target, None
                _write(target, record, request)
        except OSError as error:
            obstacles.append(f"{place} cannot be written ({error.strerror or error})")
        else:
            because = "".join(f"; {obstacle}" for obstacle in obstacles)
            return target, f"converted the model for CTranslate2: {target}{because}"
    raise UnavailableError(
        f"cannot store the converted model: {'; '.join(obstacles)}; set engine=torch to do without"
    )


def _was_made_from(record: dict[str, Any], converted: Path) -> bool:
    """Whether a folder has a conversion with this record, and regular files only."""
    try:
        found = files.read_json(converted / _MADE_FROM, {})
        return record.items() <= found.items() and all(map(Path.is_file, converted.iterdir()))
    except (OSError, ValueError):
        return False


def _write(target: Path, record: dict[str, Any], request: "EngineRequest") -> None:
    from transformer_mt.decode.engines.ctranslate2_conversion import save  # loads PyTorch

    with files.new_folder(target, replace=True) as folder:
        save(folder, request.models[0], request.tokenizer, request.folder, target.name)
        weights = request.folder / run_layout.WEIGHTS
        if checksum(request.folder, request.trained.model, weights) != record["model"]:
            raise InputError(f"{request.folder} was changed while it was read: try again")
        files.write_json(folder / _MADE_FROM, record)
