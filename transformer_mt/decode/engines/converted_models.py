"""Models converted for the CTranslate2 engine: where they are stored, and when they are reused.

This module does not load PyTorch: the weights are needed only where there is no conversion yet.
"""

import logging
from functools import partial
from pathlib import Path

from transformer_mt import files, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.decode.engine import EngineRequest, UnavailableError, torch_compute_type
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.errors import CacheError
from transformer_mt.model_folder import ModelFolder

log = logging.getLogger(__name__)

_VERSION = 2
"""Version of the conversion; when it changes, models are converted again."""


def find_or_convert(model: ModelFolder, compute_type: str) -> Path:
    """The folder of a converted model; converts it unless that was done before.

    It is in ``ctranslate2`` in the model folder or, where that cannot be written or consists of
    links, as in the Hugging Face cache, in our cache. Another model has another name.
    """
    name = f"{compute_type}-{files.cache_key(_VERSION, model.checksum)}"
    parents = [files.cache_path(TrainJob.cache_dir)]
    if not (model.path / run_layout.WEIGHTS).is_symlink():
        parents.insert(0, model.path)
    for parent in parents:
        entry = parent / run_layout.CTRANSLATE2 / name
        try:
            files.build_once(entry, partial(_convert, model, compute_type, entry))
        except CacheError as error:
            problem = error
        else:
            return entry
    raise UnavailableError(f"{problem}; or set engine=torch") from problem


def _convert(model: ModelFolder, compute_type: str, entry: Path, folder: Path) -> None:
    from transformer_mt.decode.engines.ctranslate2_conversion import save  # loads PyTorch

    log.warning("converting the model for CTranslate2: %s", entry)
    save(folder, model.load_model(), model.tokenizer, model.path, compute_type)


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
