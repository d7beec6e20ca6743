"""The interface of translation engines: token ids in, hypotheses out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from transformer_mt.config import DecodeConfig, ModelConfig
from transformer_mt.decode.translation import Hypothesis, Link
from transformer_mt.errors import InputError

TokenPair = tuple[list[int], list[int]]
"""Token ids of a source and of its translation, without special symbols."""

WordIds = tuple[list[int], list[int]]
"""Index of the word that each token belongs to, for a source and for its translation."""

CPU_BATCH_TOKENS = 8192
"""Maximum number of tokens of a batch on a CPU, padding and beams included."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a translation: tokens, and then perhaps a word that may not be finished."""

    tokens: Sequence[int] = ()
    word: Sequence[Mapping[int, int]] = ()
    """For each number of its characters, the tokens that may follow once so many are spelled, and
    the number of characters that are spelled then; any token may follow the last character."""

    def __len__(self) -> int:
        """Number of tokens of the translation that it may take."""
        return len(self.tokens) + len(self.word)


class UnavailableError(InputError):
    """An engine cannot do a job on this machine, which another engine may be able to do."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine and the data type that it computes in."""

    engine: str
    """Name in the registry, as in ``engine=NAME``."""
    compute_type: str = "float32"

    def __str__(self) -> str:
        extra = "" if self.compute_type == "float32" else f" compute_type={self.compute_type}"
        return f"engine={self.engine}{extra}"


class Engine(Protocol):
    """Translates, scores and aligns token sequences; registered in ``engines.selection``."""

    @property
    def choice(self) -> EngineChoice:
        """Name of the engine in the registry, and its data type."""

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a sentence, without its start or end symbol; None if
        unlimited (sinusoidal positions).
        """

    def search(
        self,
        sources: Sequence[list[int]],
        nbest: int,
        prefixes: Sequence[Prefix] | None = None,
        *,
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """Translates sentences with the settings of the engine's ``DecodeConfig``.

        Args:
            sources: Token ids of each sentence, without special symbols.
            nbest: Number of hypotheses to return for each sentence.
            prefixes: The beginning of each translation; may be empty.
            token_scores: Whether ``Hypothesis.token_log_probs`` is needed.

        Returns:
            For each sentence, up to ``nbest`` hypotheses, best first, and at least one.
        """

    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """The log-probability of each token of given translations, end symbols included."""

    def align(self, pairs: Sequence[TokenPair], words: Sequence[WordIds]) -> list[list[Link]]:
        """Links each word of given translations to a word of its source."""


def max_tokens(configs: Iterable[ModelConfig]) -> int | None:
    """``Engine.max_tokens`` of models of these shapes."""
    positions = [config.max_positions for config in configs if config.positions == "learned"]
    return min(positions) - 1 if positions else None


def max_output_tokens(
    config: DecodeConfig, source: Sequence[int], max_tokens: int | None = None
) -> int:
    """Maximum number of tokens of a sentence's translation, end symbol not counted."""
    limit = max(len(source) + config.max_extra_tokens, config.min_length)
    limits = (limit, config.max_length, max_tokens)
    return min(limit for limit in limits if limit is not None)
