"""Models converted for the CTranslate2 engine: where they are stored, and when they are reused.

This module does not load PyTorch: the weights are needed only where there is no conversion yet.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt import files, run_layout
from transformer_mt.decode.engine import UnavailableError, check_supported
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.request import EngineRequest, torch_compute_type

if TYPE_CHECKING:
    from transformer_mt.decode.engines.torch_engine import TorchEngine

log = logging.getLogger(__name__)

_VERSION = 2
"""Version of the conversion; when it changes, models are converted again."""
_MADE_FROM = "made_from.json"


def find_or_convert(request: EngineRequest, compute_type: str) -> Path:
    """The folder of a request's converted model; converts it unless that was done before.

    It is ``ctranslate2/COMPUTE_TYPE`` in the model folder or, where that cannot be written or has
    links, such as in the Hugging Face cache, in our cache.

    Raises:
        UnavailableError: The converted model cannot be stored anywhere.
        InputError: The model cannot be loaded.
    """
    record = {"model": request.checksums[0], "version": _VERSION}
    in_folder = request.folder / run_layout.CTRANSLATE2
    in_cache = files.cache_path(request.cache_dir) / "ctranslate2" / request.checksums[0][:16]
    links = in_folder, in_folder / compute_type, request.folder / run_layout.WEIGHTS
    has_links = any(path.is_symlink() for path in links)
    obstacles: list[str] = []
    for place in [in_cache] if has_links else [in_folder, in_cache]:
        target = place / compute_type
        if _was_made_from(record, target):  # also where nothing can be written
            return target
        if target.exists() and not (target / _MADE_FROM).exists():
            obstacles.append(f"{target} is not ours to replace")
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            with files.locked(place / ".lock"):
                if not _was_made_from(record, target):  # another process may have been faster
                    _convert(request, target, record)
                    because = "".join(f"; {obstacle}" for obstacle in obstacles)
                    log.warning(f"converted the model for CTranslate2: {target}{because}")
            return target
        except OSError as error:
            obstacles.append(f"{place} cannot be written ({error.strerror or error})")
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


def _convert(request: EngineRequest, target: Path, record: dict[str, Any]) -> None:
    from transformer_mt.decode.engines.ctranslate2_conversion import save  # loads PyTorch

    with files.new_folder(target, replace=True) as folder:
        save(folder, request.models[0], request.tokenizer, request.folder, target.name)
        files.write_json(folder / _MADE_FROM, record)


def build(request: EngineRequest) -> CTranslate2Engine:
    """Builds the CTranslate2 engine, and converts the model unless that was done before."""
    if request.torch_only:
        raise UnavailableError(
            f"engine=ctranslate2 does not support {', '.join(request.torch_only)}: set engine=torch"
        )
    compute_type = "int8"
    if request.compute_type != "fast":
        compute_type = torch_compute_type(request.compute_type, request.device)
    check_available(compute_type, request.device)
    check_supported(request.trained.model)

    def torch_engine() -> "TorchEngine":
        from transformer_mt.decode.engines.torch_engine import build  # loads PyTorch

        return build(request, compute_type="float32")

    return CTranslate2Engine(
        find_or_convert(request, compute_type),
        request.tokenizer,
        request.trained.model,
        request.config,
        torch_engine,
        compute_type=compute_type,
        device=request.device,
    )
