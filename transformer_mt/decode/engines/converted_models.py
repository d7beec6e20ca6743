"""Models converted for the CTranslate2 engine: where they are stored, and when they are reused.

This module does not load PyTorch: the weights are needed only where there is no conversion yet.
"""

import json
import logging
import os
from pathlib import Path

from transformer_mt import files, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.decode.engine import EngineRequest, UnavailableError, torch_compute_type
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.model_folder import ModelFolder

log = logging.getLogger(__name__)

_VERSION = 2
"""Version of the conversion; when it changes, models are converted again."""
_MADE_FROM = "made_from.json"


def find_or_convert(model: ModelFolder, compute_type: str) -> Path:
    """The folder of a converted model; converts it unless that was done before.

    It is ``ctranslate2/COMPUTE_TYPE`` in the model folder or, where that cannot be written or
    consists of links, as in the Hugging Face cache, in our cache.
    """
    record = json.dumps({"model": model.checksum, "version": _VERSION}, indent=2) + "\n"
    in_folder = model.path / run_layout.CTRANSLATE2 / compute_type
    cache = files.cache_path(TrainJob.cache_dir) / "ctranslate2" / model.checksum
    for target in (in_folder, cache / compute_type):
        if _was_made_from(record, target):  # also where nothing can be written
            return target
    is_linked = (model.path / run_layout.WEIGHTS).is_symlink()
    is_foreign = in_folder.exists() and not (in_folder / _MADE_FROM).exists()
    target = cache / compute_type
    if os.access(model.path, os.W_OK) and not is_linked and not is_foreign:
        target = in_folder
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(target.parent / ".lock"):
            if not _was_made_from(record, target):  # another process may have been faster
                from transformer_mt.decode.engines.ctranslate2_conversion import save  # PyTorch

                with files.new_folder(target, replace=True) as folder:
                    save(folder, model.load_model(), model.tokenizer, model.path, compute_type)
                    files.write_text(folder / _MADE_FROM, record)
                log.warning(f"converted the model for CTranslate2: {target}")
    except OSError as error:
        raise UnavailableError(
            f"cannot store the converted model in {target} ({error.strerror or error}); set "
            "XDG_CACHE_HOME, or engine=torch to do without"
        ) from error
    return target


def _was_made_from(record: str, converted: Path) -> bool:
    path = converted / _MADE_FROM
    return path.is_file() and path.read_bytes() == record.encode()


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
    return CTranslate2Engine(
        find_or_convert(request.folder, compute_type),
        request.tokenizer,
        request.trained.model,
        request.config,
        compute_type=compute_type,
        device=request.device,
    )
