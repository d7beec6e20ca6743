"""Requests for translation engines, and the fixed rule that chooses an engine."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

from transformer_mt.config import EvaluateJob, TranslateJob
from transformer_mt.decode.engine import SINUSOIDS, Engine, UnavailableError, unsupported_shape
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.model_folder import ModelFolder
from transformer_mt.registries import ENGINES

log = logging.getLogger(__name__)


class EngineRequest:
    """A model, and what an engine shall do with it; weights are loaded only when they are needed.

    Args:
        job: Names the model, the engine and the search.
        needs: Further settings of the job that only PyTorch supports, such as ``alignment``.
        token_scores: Whether log-probabilities of tokens are wanted, which ``auto`` then takes
            PyTorch for.
    """

    def __init__(
        self,
        job: TranslateJob | EvaluateJob,
        needs: Sequence[str] = (),
        *,
        token_scores: bool = False,
    ):
        assert job.model is not None
        self.folder = ModelFolder(job.model, job.step)
        self.tokenizer, self.trained = self.folder.tokenizer, self.folder.trained
        ensemble = job.ensemble if isinstance(job, TranslateJob) else []
        self.folders = [self.folder, *map(ModelFolder, ensemble)]
        """All members of the ensemble."""
        for other in self.folders[1:]:
            own = other.tokenizer.vocabulary, other.tokenizer.tgt.vocabulary
            if own != (self.tokenizer.vocabulary, self.tokenizer.tgt.vocabulary):
                raise InputError(
                    f"{self.folder.path} and {other.path} have different vocabularies, but models "
                    "of an ensemble must share one (train the second with "
                    "tokenizer.path=FIRST/tokenizer.model)"
                )
        self.config = self.trained.decode.for_job(job)
        self.device = _pick_device(job.device)
        """``cpu`` or ``cuda``."""
        self.engine, self.compute_type = job.engine, job.compute_type
        self.needs, self.token_scores = needs, token_scores

    @property
    def torch_only(self) -> list[str]:
        """The settings in use, and properties of the model, that CTranslate2 does not support.

        One of them is ``step``: a folder holds the conversion of one set of weights, which would be
        overwritten at each change.
        """
        longest = self.config.max_source_tokens
        used = {
            "step": self.folder.step is not None,
            "ensemble": len(self.folders) > 1,
            "sampling": self.config.sampling,
            f"max_source_tokens={longest}": longest >= SINUSOIDS,
        }
        keys = [key for key, is_used in used.items() if is_used]
        return [*self.needs, *keys, *unsupported_shape(self.trained.model)]


def _pick_device(name: str) -> str:
    """The device that a setting names; finds out without PyTorch that there is no GPU."""
    # CTranslate2 does not see AMD's GPUs, and its builds for some processors see none.
    if name == "auto" and not (Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists()):
        with suppress(ImportError):
            from ctranslate2 import get_cuda_device_count

            name = "auto" if get_cuda_device_count() else "cpu"
    if name not in ("auto", "cuda"):
        return name
    from transformer_mt.distributed.world import pick_device, warn_about_gpu

    warn_about_gpu(name)
    return str(pick_device(name))


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


def open_engine(request: EngineRequest) -> Engine:
    """Builds the requested engine or, for ``auto``, the first that is available."""
    names = _by_preference(request) if request.engine == "auto" else [request.engine]
    for candidate in names:
        try:
            engine: Engine = resolve_name(ENGINES[candidate])(request)
            break
        except UnavailableError as error:
            if candidate == names[-1]:
                raise
            log.warning("%s; using engine=%s", error, names[-1])
    if request.compute_type == "fast":
        used = f"engine={engine.name} compute_type={engine.compute_type}"
        differs = ": some translations and all scores differ from float32's"
        log.warning("compute_type=fast: using %s", used + differs * ("float32" not in used))
    return engine


def _by_preference(request: EngineRequest) -> list[str]:
    """Engines that can do a job, the best first.

    That is CTranslate2 where it is installed and can do the job, on a CPU: it is faster there for
    single lines and for small models (``scripts/bench/RESULTS.md``), and on a GPU it needs CUDA
    libraries other than torch's. Otherwise it is PyTorch.
    """
    compute_type = request.compute_type
    if request.torch_only or compute_type in ("bfloat16", "float16"):
        return ["torch"]
    if compute_type == "int8":
        return ["ctranslate2"]
    if request.token_scores and compute_type != "fast":
        return ["torch"]
    if request.device != "cpu" or find_spec("ctranslate2") is None:
        return ["torch"]
    return ["ctranslate2", "torch"]
