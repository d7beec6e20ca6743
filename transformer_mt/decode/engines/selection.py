"""Choice of the translation engine: the requested one, or the fastest that can do the job."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from transformer_mt.config import DecodeConfig
from transformer_mt.config.checks import choice
from transformer_mt.config.decode import COMPUTE_TYPES, ENGINES
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.engines.ctranslate2_conversion import check_shape, convert
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.engine import Engine
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """What an engine is built from."""

    folder: Path
    """Model folder; a converted model is stored in it."""
    models: Sequence[Transformer]
    """The folder's model and further members of an ensemble, on the CPU; building an engine moves
    them to ``device``."""
    tokenizer: Tokenizer
    config: DecodeConfig
    """Search settings."""
    device: torch.device
    compute_type: str = "float32"
    step: int | None = None
    """Step of the checkpoint that the weights are from; None for the folder's final weights."""
    given_translations: Sequence[str] = ()
    """Names of the settings that give (parts of) translations: ``prefix``, ``score``."""

    @property
    def torch_only(self) -> list[str]:
        """The settings in use that CTranslate2 does not support.

        One of them is ``step``: a folder holds the conversion of one set of weights, which would be
        overwritten at each change.
        """
        used = {
            "step": self.step is not None,
            "ensemble": len(self.models) > 1,
            "prefix": "prefix" in self.given_translations,
            "score": "score" in self.given_translations,
            "min_length": self.config.min_length > 0,
            "no_repeat_ngram": self.config.no_repeat_ngram > 0,
            "sampling": self.config.sampling,
        }
        return [key for key, is_used in used.items() if is_used]


def open_engine(
    engine: str, request: EngineRequest, report: Callable[[str], None] = log.warning
) -> Engine:
    """Builds the engine with this name; ``auto`` takes the fastest that can do the job.

    Args:
        engine: ``auto`` or a name in ``BUILDERS``.
        request: What to build it from.
        report: Called with each message for the user.

    Raises:
        InputError: The engine cannot do the job, or not on this device.
    """
    choice("engine", engine, *ENGINES)
    choice("compute_type", request.compute_type, *COMPUTE_TYPES)
    name = _fastest(request) if engine == "auto" else engine
    try:
        return BUILDERS[name](request, report)
    except InputError as error:
        if engine != "auto" or name == "torch" or request.compute_type != "float32":
            raise
        report(f"{error}; using engine=torch")
        return BUILDERS["torch"](request, report)


def _fastest(request: EngineRequest) -> str:
    """The engine that ``engine=auto`` stands for.

    On a CPU it is CTranslate2 if it is installed and supports the job, in float32, where
    translations are the same. int8 is faster but changes some translations, so it must be asked
    for. On a CPU CTranslate2 has no half precision.
    """
    if request.torch_only:
        return "torch"
    if request.compute_type == "int8":
        return "ctranslate2"
    on_cpu = request.device.type == "cpu"
    if request.compute_type != "float32" or not on_cpu or find_spec("ctranslate2") is None:
        return "torch"
    try:
        check_shape(request.models[0].config)
    except InputError:
        return "torch"
    return "ctranslate2"


def _build_torch(request: EngineRequest, _: Callable[[str], None]) -> Engine:
    if request.compute_type == "int8":
        because = f", which does not support {', '.join(request.torch_only)}"
        raise InputError(
            f"compute_type=int8 needs engine=ctranslate2{because if request.torch_only else ''}: "
            "set compute_type=float32 or bfloat16"
        )
    if request.compute_type == "float16" and request.device.type == "cpu":
        raise InputError(
            "compute_type=float16 needs a GPU: set compute_type=float32 or bfloat16 on a CPU"
        )
    dtype: torch.dtype = getattr(torch, request.compute_type)
    model, *ensemble = (model.to(request.device) for model in request.models)
    return TorchEngine(model, request.config, ensemble, dtype)


def _build_ctranslate2(request: EngineRequest, report: Callable[[str], None]) -> Engine:
    if request.torch_only:
        raise InputError(
            f"engine=ctranslate2 does not support {', '.join(request.torch_only)}: set engine=torch"
        )
    check_available(request.compute_type, request.device)
    model, tokenizer = request.models[0], request.tokenizer
    converted, note = convert(request.folder, model, tokenizer, request.compute_type)
    if note:
        report(note)
    fallback = TorchEngine(model.to(request.device), request.config)
    return CTranslate2Engine(converted, fallback, tokenizer.vocabulary, request.compute_type)


BUILDERS: dict[str, Callable[[EngineRequest, Callable[[str], None]], Engine]] = {
    "torch": _build_torch,
    "ctranslate2": _build_ctranslate2,
}
"""The registry of engines. Names are listed in ``config.decode.ENGINES`` too."""
