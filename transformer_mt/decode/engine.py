"""The interface of translation engines: token ids in, hypotheses out."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.errors import InputError

if TYPE_CHECKING:  # loads PyTorch, which CTranslate2 does not need
    from torch import Tensor

Length = TypeVar("Length", float, "Tensor")

BATCH_TOKENS = {"cpu": 8192, "cuda": 131_072}
"""Maximum number of tokens of a batch, padding and beams included, by type of device. On a GPU, for
4,000 rows of 30 tokens: not measured. PyTorch's batches are halved when memory runs out."""

SINUSOIDS = 2048
"""Number of sinusoidal positions of a model converted to CTranslate2; the model itself has no
limit. The longest sequence, start or end symbol included, that CTranslate2 translates."""

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
