"""The results of translation: hypotheses, which are token ids, and translations, which are text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Length = TypeVar("Length", float, "Tensor")

Link = tuple[int, int]
"""A source word and a word of the translation, each counted from 0."""


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
    """Terms of ``log_prob``, the end symbol's last; empty if the engine did not provide them."""


def length_penalty(length: Length, alpha: float) -> Length:
    """GNMT's lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14); |Y| counts the end symbol."""
    penalty: Length = ((5 + length) / 6) ** alpha
    return penalty


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    """The translation, detokenised; one line."""
    score: float
    """Length-normalised log-probability, summed over the parts of a line that was split; 0 for an
    empty line."""
    tokens: int
    """Number of tokens, end symbols not counted."""
    log_prob: float = 0.0
    """Log-probability of all pieces, end symbols included."""
    pieces: list[str] = field(default_factory=list)
    """The tokens and, after each part of the line, an end symbol."""
    piece_log_probs: list[float] = field(default_factory=list)
    """Log-probability of each piece; empty if not requested, or if CTranslate2 translated in
    another type than float32."""
    alignment: list[Link] | None = None
    """If requested, for each word of the translation the source word that it is linked to. Words
    are separated by spaces in the line as the model reads it (``data.normalization``) and counted
    from 0."""

    @classmethod
    def joined(cls, parts: Sequence["Translation"], space: str = " ") -> "Translation":
        """The translation of a line from those of its parts, without an alignment."""
        return cls(
            space.join(part.text for part in parts if part.text),
            sum(part.score for part in parts),
            sum(part.tokens for part in parts),
            sum(part.log_prob for part in parts),
            [piece for part in parts for piece in part.pieces],
            [value for part in parts for value in part.piece_log_probs],
        )
