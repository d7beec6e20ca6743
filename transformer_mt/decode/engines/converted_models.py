"""Models converted to CTranslate2: where they are kept, and which of them may be used.

This module does not load PyTorch: the weights are needed only where there is no conversion yet.
"""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt import files, run_layout
from transformer_mt.config import ModelConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import (
    BOS,
    EOS,
    UNK,
    Tokenizer,
    vocabulary_checksum,
    vocabulary_files,
)
from transformer_mt.decode.engines.engine import UnavailableError

if TYPE_CHECKING:
    from transformer_mt.model.transformer import Transformer

SINUSOIDS = 2048
"""Number of sinusoidal positions of a converted model; the model itself has no limit."""

_VERSION = 2
"""Version of the conversion; when it changes, models are converted again."""
_MADE_FROM = "made_from.json"
_MODEL, _CONFIG, _VOCABULARY = "model.bin", "config.json", "{}_vocabulary.json"
_MAX_WEIGHTS_BYTES = 2**36
"""Larger weights are not read: a sparse file has any size."""
_MAX_VOCABULARY_BYTES = 2**28
_MAX_POSITIONS_BYTES = 2**26
"""Maximum size of the sinusoids in a converted model, which ``model.safetensors`` does not have."""


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


def special_tokens(pieces: Sequence[str]) -> dict[str, Any]:
    """The settings in a converted model's ``config.json`` that tell how it is used."""
    return {
        "unk_token": pieces[UNK],
        "bos_token": pieces[BOS],
        "decoder_start_token": pieces[BOS],
        "eos_token": pieces[EOS],
        "add_source_eos": True,
    }


def checksum(folder: Path, config: ModelConfig, weights: Path) -> str:
    """SHA-256 of a model: of its weights, its shape and its vocabulary.

    Raises:
        OSError: A file cannot be read, is not a regular file, or is too large.
    """
    files.open_regular(weights, _MAX_WEIGHTS_BYTES).close()
    parts = [files.sha256(weights), vocabulary_checksum(folder), asdict(config)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find_or_convert(
    folder: Path,
    model_checksum: str,
    tokenizer: Tokenizer,
    compute_type: str,
    load: Callable[[], "Transformer"],
    cache_dir: str = TrainJob.cache_dir,
) -> tuple[Path, str | None]:
    """Converts a model, unless there is a valid conversion of the same weights.

    It is stored in ``ctranslate2/COMPUTE_TYPE`` in the model folder or, where that cannot be
    written or has links, such as in the Hugging Face cache, in our cache.

    Args:
        folder: The model folder, which is not trusted.
        model_checksum: ``checksum`` of the model.
        tokenizer: Its vocabulary.
        compute_type: Data type of the converted weights.
        load: Loads the model, on the CPU; called only to convert it.
        cache_dir: The setting of this name.

    Returns:
        The folder of the converted model, and a message for the user if it was converted now.

    Raises:
        UnavailableError: The converted model cannot be stored anywhere.
        InputError: ``load`` cannot load the model.
    """
    in_folder = folder / run_layout.CTRANSLATE2
    in_cache = files.cache_path(cache_dir) / "ctranslate2" / model_checksum[:16]
    links = (in_folder, in_folder / compute_type, folder / run_layout.WEIGHTS)
    places = [in_cache] if any(path.is_symlink() for path in links) else [in_folder, in_cache]
    size = (folder / run_layout.WEIGHTS).stat().st_size

    def is_valid(place: Path) -> bool:
        return _is_valid(place / compute_type, model_checksum, tokenizer, size)

    for place in filter(is_valid, places):
        return place / compute_type, None
    obstacles: list[str] = []
    for place in places:
        target = place / compute_type
        try:
            place.mkdir(parents=True, exist_ok=True)
            with files.locked(place / ".lock"):
                if is_valid(place):  # another process was faster
                    return target, None
                _write(target, model_checksum, load(), tokenizer, folder)
        except OSError as error:
            obstacles.append(f"{place} cannot be written ({error.strerror or error})")
        else:
            because = "".join(f"; {obstacle}" for obstacle in obstacles)
            return target, f"converted the model for CTranslate2: {target}{because}"
    raise UnavailableError(
        f"cannot store the converted model: {'; '.join(obstacles)}; set engine=torch to do without"
    )


def _is_valid(
    converted: Path, model_checksum: str, tokenizer: Tokenizer, weights_size: int
) -> bool:
    """Whether a folder has all files of a conversion of this model, intact and fitting it."""
    try:
        record = files.read_json(converted / _MADE_FROM)
        # Of another size it is no conversion of these weights, whatever its checksum.
        largest = 4 * weights_size + _MAX_POSITIONS_BYTES
        with files.open_regular(converted / _MODEL, largest) as file:
            if file.seek(0, io.SEEK_END) < weights_size // 8:
                return False
        settings = files.read_json(converted / _CONFIG)
        fits = settings.items() >= special_tokens(tokenizer.tgt.vocabulary).items()
        for name, pieces in _vocabularies(tokenizer).items():
            fits &= pieces == files.read_json(converted / name, max_bytes=_MAX_VOCABULARY_BYTES)
        return fits and record == _record(model_checksum, converted, tokenizer)
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _vocabularies(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The vocabulary files of a converted model and their content."""
    if tokenizer.is_joint:
        return {_VOCABULARY.format("shared"): tokenizer.vocabulary}
    sides = {"source": tokenizer, "target": tokenizer.tgt}
    return {_VOCABULARY.format(name): side.vocabulary for name, side in sides.items()}


def _record(model_checksum: str, converted: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of ``made_from.json``: what a conversion was made from, and its files."""
    copied = (path.name for path in vocabulary_files(converted))
    names = (_MODEL, _CONFIG, *_vocabularies(tokenizer), *copied)
    checksums = {name: files.sha256(converted / name) for name in names}
    return {"model": model_checksum, "version": _VERSION, "files": checksums}


def _write(
    target: Path, model_checksum: str, model: "Transformer", tokenizer: Tokenizer, vocabulary: Path
) -> None:
    from transformer_mt.decode.engines.ctranslate2_conversion import save  # loads PyTorch

    with files.new_folder(target, replace=True) as folder:
        save(folder, model, tokenizer, vocabulary, target.name)
        files.write_text(
            folder / _MADE_FROM, json.dumps(_record(model_checksum, folder, tokenizer))
        )
