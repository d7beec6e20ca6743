"""Result of a validation: metrics, sample translations, attention weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from transformer_mt.model.attention_maps import AttentionMaps
from transformer_mt.model.transformer import Transformer


class TranslationSample(NamedTuple):
    """One line of the validation set and its translation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class AttentionSample:
    """Attention weights of one line and its translation."""

    maps: AttentionMaps
    src_pieces: list[str]
    """Source tokens as text, [S]."""
    tgt_pieces: list[str]
    """Target tokens that the decoder read, as text, [T]."""


@dataclass(frozen=True)
class ValidationResult:
    """Metrics of a model on the validation set, and examples of its output."""

    metrics: dict[str, float]
    """Scores by name, on every rank."""
    samples: list[TranslationSample] = field(default_factory=list)
    """The same few lines at every validation; empty on ranks other than the main one."""
    attention: AttentionSample | None = None
    """Attention weights of one of these lines, on the main rank."""


class Validator(Protocol):
    """Translates and scores the validation set; every rank calls it."""

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each metric in the results."""
        ...

    def __call__(self, model: Transformer) -> ValidationResult:
        """Validates a model in ``eval`` mode."""
        ...
