"""The result of translating one line."""

from collections.abc import Sequence
from dataclasses import dataclass, field

Link = tuple[int, int]
"""A source word and a word of the translation, each counted from 0."""


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
