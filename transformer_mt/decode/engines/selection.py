"""Choice of the translation engine, by a fixed rule."""

import logging
from importlib.util import find_spec
from pkgutil import resolve_name

from transformer_mt.config.checks import choice
from transformer_mt.decode.engines.converted_models import check_shape
from transformer_mt.decode.engines.engine import Engine, UnavailableError
from transformer_mt.decode.engines.request import EngineRequest
from transformer_mt.registries import ENGINES

log = logging.getLogger(__name__)


def open_engine(name: str, request: EngineRequest) -> Engine:
    """Builds an engine: the one of this name or, for ``auto``, the first that is available.

    Raises:
        InputError: There is no engine of this name, or it cannot do the job on this device, or the
            model folder is damaged.
    """
    choice("engine", name, "auto", *ENGINES)
    *preferred, last = _by_preference(request) if name == "auto" else [name]
    for candidate in preferred:
        try:
            return _build(candidate, request)
        except UnavailableError as error:
            log.warning("%s; using engine=%s", error, last)
    return _build(last, request)


def _by_preference(request: EngineRequest) -> list[str]:
    """Engines that can do a job, the best first.

    That is CTranslate2 where it is installed and can do the job, on a CPU: it is faster there for
    single lines and for small models (``scripts/bench/RESULTS.md``), and on a GPU it needs CUDA
    libraries other than torch's. Otherwise it is PyTorch.
    """
    if request.torch_only or request.compute_type in ("bfloat16", "float16"):
        return ["torch"]
    if request.compute_type == "int8":
        return ["ctranslate2"]
    if request.device != "cpu" or find_spec("ctranslate2") is None:
        return ["torch"]
    try:
        check_shape(request.trained.model)
    except UnavailableError:
        return ["torch"]
    return ["ctranslate2", "torch"]


def _build(name: str, request: EngineRequest) -> Engine:
    engine: Engine = resolve_name(ENGINES[name])(request)
    if request.compute_type == "fast":
        message, used = f"compute_type=fast is engine={engine.name}", engine.compute_type
        if used != "float32":
            differs = "some translations and all scores differ from float32's"
            message += f" compute_type={used}: {differs}"
        log.warning("%s", message)
    return engine
