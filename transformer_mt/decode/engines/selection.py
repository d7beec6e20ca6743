"""Choice of the translation engine: the requested one, or the fastest that can do the job."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from transformer_mt import __version__
from transformer_mt.config import DecodeConfig
from transformer_mt.config.checks import choice
from transformer_mt.config.decode import COMPUTE_TYPES, ENGINES
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.engines.ctranslate2_conversion import check_shape, checksum, convert
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.engine import Engine, EngineChoice
from transformer_mt.decode.engines.fastest_engine import FastestEngine
from transformer_mt.decode.engines.torch_engine import TorchEngine, max_tokens
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.model.transformer import Transformer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """Everything that an engine is built from."""

    folder: Path
    """Model folder; a converted model is stored in it."""
    models: Sequence[Transformer]
    """The folder's model and further members of an ensemble, on the CPU; building an engine moves
    them to ``device``."""
    tokenizer: Tokenizer
    config: DecodeConfig
    """Search settings."""
    device: torch.device
    compute_type: str = "auto"
    step: int | None = None
    """Step of the checkpoint that the weights are from; None for the folder's final weights."""
    given_translations: Sequence[str] = ()
    """Names of the settings that give (parts of) translations: ``prefix``, ``score``."""

    @cached_property
    def checksums(self) -> list[str]:
        """Checksum of each model and its vocabulary."""
        return [checksum(model, self.tokenizer) for model in self.models]

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
    """Builds the requested engine, or one that switches to the fastest.

    Args:
        engine: ``auto`` or a name in ``BUILDERS``.
        request: What to build it from.
        report: Called with each message for the user.

    Raises:
        InputError: The engine cannot do the job on this device.
    """
    choice("engine", engine, *ENGINES)
    choice("compute_type", request.compute_type, *COMPUTE_TYPES)
    candidates = _candidates(engine, request)

    def build(candidate: EngineChoice) -> Engine:
        return BUILDERS[candidate.engine](request, candidate.compute_type, report)

    if len(candidates) == 1:
        return build(candidates[0])
    return FastestEngine(
        candidates,
        build,
        max_tokens=max_tokens(request.models),
        conditions=partial(_conditions, request, tuple(candidates)),
        report=report,
    )


def _candidates(engine: str, request: EngineRequest) -> list[EngineChoice]:
    """The engines that may do the job; until they have been timed, the first one does.

    It is CTranslate2: it is faster for single lines and for small models on every CPU measured
    (``scripts/bench/RESULTS.md``). On a GPU it needs CUDA libraries other than torch's, so it is
    used only on request.
    """
    compute_type = request.compute_type
    if compute_type in ("int8", "bfloat16", "float16"):
        if engine == "auto":  # one engine has it
            with_int8 = compute_type == "int8" and not request.torch_only
            engine = "ctranslate2" if with_int8 else "torch"
        return [EngineChoice(engine, compute_type)]
    names = [engine]
    if engine == "auto":
        names = ["ctranslate2", "torch"] if request.device.type == "cpu" else ["torch"]
    types = ["int8", "bfloat16", "float32"] if compute_type == "fast" else ["float32"]
    all_choices = [EngineChoice(name, each) for each in types for name in names]
    suitable = [each for each in all_choices if _is_suitable(each, request)]
    return suitable or all_choices[-1:]  # which reports why it is impossible


def _is_suitable(candidate: EngineChoice, request: EngineRequest) -> bool:
    """Whether an engine can do the job in this type, and may be fast at it."""
    if candidate.engine == "torch":  # where bfloat16 is not fast, it may be 20 times slower
        return candidate.compute_type == "float32" or (
            candidate.compute_type == "bfloat16" and hardware.has_fast_bf16(request.device)
        )
    if request.torch_only or find_spec("ctranslate2") is None:
        return False
    try:
        check_shape(request.models[0].config)
        if candidate.compute_type != "float32":
            check_available(candidate.compute_type, request.device)
    except InputError:
        return False
    return True


def _conditions(request: EngineRequest, candidates: Sequence[EngineChoice]) -> dict[str, Any]:
    """Everything that the speeds of engines depend on, as JSON values."""
    packages = ("torch", "ctranslate2") if find_spec("ctranslate2") else ("torch",)
    return {
        "models": request.checksums,
        "processor": hardware.exact_model(request.device),
        "threads": torch.get_num_threads(),
        "versions": {"transformer_mt": __version__, **{name: version(name) for name in packages}},
        "beam_size": request.config.beam_size,
        "candidates": [str(candidate) for candidate in candidates],
    }


def _build_torch(request: EngineRequest, compute_type: str, _: Callable[[str], None]) -> Engine:
    if compute_type == "int8":
        because = f", which does not support {', '.join(request.torch_only)}"
        raise InputError(
            f"compute_type=int8 needs engine=ctranslate2{because if request.torch_only else ''}: "
            "set compute_type=float32 or bfloat16"
        )
    if compute_type == "float16" and request.device.type == "cpu":
        raise InputError("compute_type=float16 needs a GPU: set compute_type=float32 or bfloat16")
    dtype: torch.dtype = getattr(torch, compute_type)
    model, *ensemble = (model.to(request.device) for model in request.models)
    return TorchEngine(model, request.config, ensemble, dtype)


def _build_ctranslate2(
    request: EngineRequest, compute_type: str, report: Callable[[str], None]
) -> Engine:
    if request.torch_only:
        raise InputError(
            f"engine=ctranslate2 does not support {', '.join(request.torch_only)}: set engine=torch"
        )
    check_available(compute_type, request.device)
    model, tokenizer = request.models[0], request.tokenizer
    converted, note = convert(request.folder, model, tokenizer, compute_type)
    if note:
        report(note)
    fallback = TorchEngine(model.to(request.device), request.config)
    return CTranslate2Engine(converted, fallback, tokenizer.vocabulary, compute_type)


BUILDERS: dict[str, Callable[[EngineRequest, str, Callable[[str], None]], Engine]] = {
    "torch": _build_torch,
    "ctranslate2": _build_ctranslate2,
}
"""The registry of engines: (request, data type, report) → engine. Names are listed in
``config.decode.ENGINES`` too."""
