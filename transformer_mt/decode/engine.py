"""The interface of translation engines (token ids in, hypotheses out), and the choice of one."""

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config import DecodeConfig, EvaluateJob, ModelConfig, TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.kernels import hardware
from transformer_mt.model_folder import ModelFolder
from transformer_mt.registries import ENGINES

if TYPE_CHECKING:  # loads PyTorch, which CTranslate2 does not need
    from torch import Tensor

log = logging.getLogger(__name__)

Length = TypeVar("Length", float, "Tensor")

BATCH_TOKENS = {"cpu": 8192, "cuda": 131_072}
"""Maximum number of tokens of a batch, padding and beams included, by type of device. The GPU's
holds about 4,000 rows of 30 tokens, and has not been tuned. PyTorch's batches are halved when
memory runs out."""

SINUSOIDS = 2048
"""Number of sinusoidal positions of a model converted to CTranslate2; the model itself has no
limit. The longest sequence, start or end symbol included, that CTranslate2 translates."""

_GPUS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Devices of which Linux has one if there is a GPU: of NVIDIA, of AMD, and on WSL."""

NAN_MESSAGE = (
    "the model's output is not a number: its weights are damaged, or its training diverged: copy "
    "the model again, or use another checkpoint (step=N)"
)


class UnavailableError(InputError):
    """An engine cannot do a job, which another engine may be able to do."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation of a sentence."""

    tokens: list[int]
    """Token ids, without start and end symbols."""
    log_prob: float
    """Sum of the log-probabilities of the tokens and of the end symbol."""
    score: float
    """``log_prob`` divided by the length penalty; hypotheses are ranked by it."""
    token_log_probs: list[float] = field(default_factory=list)
    """Terms of ``log_prob``, the end symbol's last; empty with CTranslate2."""


class Engine(ABC):
    """Translates token sequences; registered in ``registries.ENGINES``.

    PyTorch's search is the reference. CTranslate2 searches in its own way, and does nothing else:
    prefixes, and what it does not override, raise ``UnavailableError``.
    """

    name: str
    """Name in the registry, as in ``engine=NAME``."""
    compute_type: str
    """Data type that it computes in."""
    max_tokens: int
    """Maximum number of tokens of a sentence, without its start or end symbol."""

    @abstractmethod
    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translates sentences with the settings of the engine's ``DecodeConfig``.

        Args:
            sources: Token ids of each sentence, without special symbols.
            nbest: Number of hypotheses to return for each sentence; at most ``beam_size``, unless
                they are samples.
            prefixes: Token ids that each translation begins with; may be empty.

        Returns:
            For each sentence, up to ``nbest`` hypotheses, best first, and at least one.
        """

    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """The log-probability of each token of given translations, end symbols included.

        Args:
            sources: Token ids of each sentence, without special symbols.
            targets: Token ids of each translation, without special symbols.

        Returns:
            For each translation, one value more than it has tokens: the last is the end symbol's.
        """
        self._refuse("scores of given translations")

    def align(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[NDArray[np.float32]]:
        """How much each token of given translations belongs to each token of its source.

        Args:
            pairs: Token ids of each source and of its translation, without special symbols.

        Returns:
            For each pair, [T, S] weights; rows sum to at most 1.
        """
        self._refuse("alignments")

    def _refuse(self, job: str) -> NoReturn:
        """Raises ``UnavailableError`` for what only PyTorch does."""
        raise UnavailableError(f"engine={self.name} does not support {job}: set engine=torch")


def length_penalty(length: Length, alpha: float) -> Length:
    """GNMT's lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14); |Y| counts the end symbol."""
    penalty: Length = ((5 + length) / 6) ** alpha
    return penalty


def max_tokens(config: ModelConfig) -> int:
    """``Engine.max_tokens`` of a model; sinusoidal positions have no limit."""
    return config.max_positions - 1 if config.positions == "learned" else sys.maxsize


def max_output_tokens(config: DecodeConfig, source_length: int, max_tokens: int) -> int:
    """Maximum number of tokens of a sentence's translation, end symbol not counted."""
    return min(source_length + config.max_extra_tokens, max_tokens)


def unsupported_shape(config: ModelConfig) -> list[str]:
    """What CTranslate2 and transformers do not support about a model's shape, in words."""
    return [
        f"model.{name}={size} (not d_model / num_heads = {config.d_model} / {config.num_heads})"
        for name, size in (("d_k", config.key_size), ("d_v", config.value_size))
        if size * config.num_heads != config.d_model
    ]


def check_supported(config: ModelConfig) -> None:
    """Raises ``UnavailableError`` if CTranslate2 does not support the shape of a model."""
    if unsupported := unsupported_shape(config):
        raise UnavailableError(f"CTranslate2 does not support {', '.join(unsupported)}")


class EngineRequest:
    """A model, and what an engine is to do with it; weights are loaded only when they are needed.

    Args:
        job: Names the model, the engine and the search.
    """

    def __init__(self, job: TranslateJob | EvaluateJob):
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
        self._job = job

    @property
    def torch_only(self) -> list[str]:
        """The settings in use, and properties of the model, that CTranslate2 does not support.

        One of them is ``step``: the conversions of all checkpoints would stay in the model folder.
        """
        longest = self.config.max_source_tokens
        used: dict[str, object] = {
            "step": self.folder.step is not None,
            "ensemble": len(self.folders) > 1,
            "sampling": self.config.sampling,
            f"max_source_tokens={longest}": longest >= SINUSOIDS,
        }
        if isinstance(job := self._job, TranslateJob):
            used |= {"prefix": job.prefix, "score": job.score, "alignment": job.alignment}
            used[f"markup={job.markup}"] = job.markup != "text"  # it is placed by word alignment
            used[f"format={job.document_format}"] = job.document_format
        else:
            used["metrics=[ppl]"] = "ppl" in (job.metrics or [])
        keys = [key for key, is_used in used.items() if is_used]
        return [*keys, *unsupported_shape(self.trained.model)]

    @property
    def wants_token_scores(self) -> bool:
        """Whether log-probabilities of tokens are wanted, which ``auto`` takes PyTorch for."""
        return isinstance(self._job, TranslateJob) and self._job.format == "jsonl"


def _pick_device(name: str) -> str:
    """The device that a setting names; finds out without PyTorch that there is no GPU."""
    if name == "cpu" or (name == "auto" and not any(map(Path.exists, _GPUS))):
        return "cpu"
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
    if request.wants_token_scores and compute_type != "fast":
        return ["torch"]
    if request.device != "cpu" or find_spec("ctranslate2") is None:
        return ["torch"]
    return ["ctranslate2", "torch"]
