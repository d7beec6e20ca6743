"""Choice of the translation engine, by a fixed rule, and what engines are built from."""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from transformer_mt import files, model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.config.checks import choice
from transformer_mt.config.decode import COMPUTE_TYPES
from transformer_mt.data.subwords.tokenizer import vocabulary_checksum
from transformer_mt.decode.engines.converted_models import check_shape, find_or_convert
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.engine import Engine, UnavailableError
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.registries import ENGINES

if TYPE_CHECKING:  # loads PyTorch, which CTranslate2 does not need
    from transformer_mt.decode.engines.torch_engine import TorchEngine
    from transformer_mt.model.transformer import Transformer

log = logging.getLogger(__name__)

_MAX_WEIGHTS_BYTES = 2**36
"""Larger weights are not read: a sparse file has any size."""


class EngineRequest:
    """Everything that an engine is built from; weights are loaded only when they are needed.

    Args:
        reference: The model: a folder, or a repository of the Hugging Face Hub. It has ``trained``,
            the job that trained it, ``tokenizer`` and ``config``, its search settings, which may be
            replaced.
        device: ``auto``, ``cpu`` or ``cuda``; afterwards as PyTorch names it.
        compute_type: As in ``mt-translate``.
        step: Step of the checkpoint whose weights to use; None for the folder's final weights.
        ensemble: Further models, whose probabilities are averaged with the first one's.
        given: Settings that give (parts of) translations: ``prefix``, ``score``.
        cache_dir: Stores a converted model that cannot be stored in its folder.

    Raises:
        InputError: The configuration or the vocabulary is missing or damaged, a repository cannot
            be downloaded, or there is no such device.
    """

    def __init__(
        self,
        reference: str | Path,
        *,
        device: str = "auto",
        compute_type: str = "auto",
        step: int | None = None,
        ensemble: Sequence[str | Path] = (),
        given: Sequence[str] = (),
        cache_dir: str = TrainJob.cache_dir,
    ):
        locate = partial(model_folder.locate, cache_dir=cache_dir)
        self.folder, *self.ensemble = map(locate, (reference, *ensemble))
        self.tokenizer, self.trained = model_folder.load_tokenizer(self.folder)
        self.config, self.device = self.trained.decode, _pick_device(device)
        self.compute_type, self.step, self.cache_dir = compute_type, step, cache_dir
        self._given = given

    @cached_property
    def models(self) -> "list[Transformer]":
        """The folder's model and further members of an ensemble, on the CPU at first."""
        loaded = self.tokenizer, self.trained
        models = [model_folder.load_model(self.folder, self.step, loaded)[0]]
        for other in self.ensemble:
            member, tokenizer, _ = model_folder.load_model(other)
            if not tokenizer.same_ids(self.tokenizer):
                raise InputError(
                    f"{self.folder} and {other} have different vocabularies, but models of an "
                    "ensemble must share one (train the second with "
                    "tokenizer.path=FIRST/tokenizer.model)"
                )
            models.append(member)
        return models

    @cached_property
    def checksums(self) -> list[str]:
        """SHA-256 of each model: of its weights, its vocabulary and its shape."""
        folders = [self.folder, *self.ensemble]
        places = [*folders]
        if self.step is not None:
            from transformer_mt.checkpoint import open_checkpoint  # loads PyTorch

            places[0] = open_checkpoint(self.folder, self.step).path
        checksums = []
        for folder, place in zip(folders, places, strict=True):
            trained = self.trained if folder == self.folder else model_folder.read_config(folder)
            path = place / run_layout.WEIGHTS
            try:
                files.open_regular(path, _MAX_WEIGHTS_BYTES).close()
                weights = files.sha256(path)
            except OSError:
                assert self.models  # loading them explains what is wrong
                raise
            parts = [weights, vocabulary_checksum(folder), asdict(trained.model)]
            checksums.append(hashlib.sha256(json.dumps(parts).encode()).hexdigest())
        return checksums

    @property
    def torch_only(self) -> list[str]:
        """The settings in use that CTranslate2 does not support.

        One of them is ``step``: a folder holds the conversion of one set of weights, which would be
        overwritten at each change.
        """
        used = {
            "step": self.step is not None,
            "ensemble": bool(self.ensemble),
            **dict.fromkeys(self._given, True),
            "min_length": self.config.min_length > 0,
            "no_repeat_ngram": self.config.no_repeat_ngram > 0,
            "sampling": self.config.sampling,
        }
        return [key for key, is_used in used.items() if is_used]


def _pick_device(name: str) -> str:
    """The device that a setting names; finds out without PyTorch that there is no GPU."""
    choice("device", name.partition(":")[0], "auto", "cpu", "cuda")
    # CTranslate2 does not see AMD's GPUs, and its builds for some processors see none.
    if name == "auto" and not (Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists()):
        with suppress(ImportError):
            from ctranslate2 import get_cuda_device_count

            name = "auto" if get_cuda_device_count() else "cpu"
    if name not in ("auto", "cuda"):
        return name
    from transformer_mt.distributed.world import pick_device

    return str(pick_device(name))


def open_engine(name: str, request: EngineRequest) -> Engine:
    """Builds an engine.

    ``auto`` is CTranslate2 where it is installed and can do the job, on a CPU: it is faster there
    for single lines and for small models (``scripts/bench/RESULTS.md``), and on a GPU it needs
    CUDA libraries other than torch's. Otherwise it is PyTorch. ``mt-translate``, ``mt-eval`` and
    ``Translator.load`` follow this rule, and that of ``torch_compute_type``.

    Raises:
        InputError: There is no engine of this name, or it cannot do the job on this device, or the
            model folder is damaged.
    """
    choice("engine", name, "auto", *ENGINES)
    choice("compute_type", request.compute_type, *COMPUTE_TYPES)
    engine: Engine = (_build_default if name == "auto" else resolve_name(ENGINES[name]))(request)
    if request.compute_type == "fast":
        message, used = f"compute_type=fast is engine={engine.name}", engine.compute_type
        if used != "float32":
            differs = "some translations and all scores differ from float32's"
            message += f" compute_type={used}: {differs}"
        log.warning("%s", message)
    return engine


def _build_default(request: EngineRequest) -> Engine:
    if request.torch_only or request.compute_type in ("bfloat16", "float16"):
        return build_torch(request)
    if request.compute_type == "int8":
        return build_ctranslate2(request)
    if request.device == "cpu" and find_spec("ctranslate2") is not None:
        try:
            check_shape(request.trained.model)
        except UnavailableError:
            return build_torch(request)
        try:
            return build_ctranslate2(request)
        except UnavailableError as error:
            log.warning("%s; using engine=torch", error)
    return build_torch(request)


def torch_compute_type(setting: str, device: str) -> str:
    """Data type in which PyTorch computes for a setting ``compute_type``.

    ``auto`` is bfloat16 on a GPU that has it, as in training, and otherwise float32; ``fast`` is
    bfloat16 on a CPU with instructions for it, too.
    """
    if setting not in ("auto", "fast"):
        return setting
    if setting == "auto" and device == "cpu":
        return "float32"
    import torch

    return "bfloat16" if hardware.has_fast_bf16(torch.device(device)) else "float32"


def build_torch(request: EngineRequest, *, compute_type: str | None = None) -> "TorchEngine":
    """Builds the PyTorch engine, for another type than the requested one if it is given."""
    compute_type = compute_type or request.compute_type
    if compute_type == "int8":
        because = f", which does not support {', '.join(request.torch_only)}"
        raise InputError(
            f"compute_type=int8 needs engine=ctranslate2{because if request.torch_only else ''}: "
            "set compute_type=float32 or bfloat16"
        )
    if compute_type == "float16" and request.device == "cpu":
        raise InputError("compute_type=float16 needs a GPU: set compute_type=float32 or bfloat16")
    import torch

    from transformer_mt.decode.engines.torch_engine import TorchEngine

    if request.device == "cpu":
        hardware.keep_freed_memory()
        if "OMP_NUM_THREADS" not in os.environ:  # torch does not see a container's quota
            torch.set_num_threads(min(torch.get_num_threads(), hardware.available_cores()))
    for model in request.models:
        model.to(request.device)
    dtype = getattr(torch, torch_compute_type(compute_type, request.device))
    return TorchEngine(request.models, request.config, dtype)


def build_ctranslate2(request: EngineRequest) -> CTranslate2Engine:
    """Builds the CTranslate2 engine, and converts the model unless that was done before."""
    if request.torch_only:
        raise UnavailableError(
            f"engine=ctranslate2 does not support {', '.join(request.torch_only)}: set engine=torch"
        )
    compute_type = "int8"
    if request.compute_type != "fast":
        compute_type = torch_compute_type(request.compute_type, request.device)
    check_available(compute_type, request.device)
    check_shape(request.trained.model)
    return CTranslate2Engine(
        find_or_convert(request, compute_type),
        request.tokenizer,
        request.trained.model,
        request.config,
        lambda: build_torch(request, compute_type="float32"),
        compute_type=compute_type,
        device=request.device,
    )
