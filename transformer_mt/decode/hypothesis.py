"""Hypotheses of a search, and their length penalty."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Length = TypeVar("Length", float, "Tensor")


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
