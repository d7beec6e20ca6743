"""The decoding step that a search calls, and forced tokens.

Shapes: B sentences, W beams, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class StepFunction(Protocol):
    """One decoding step of a model, with its incremental state."""

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Log-probabilities of the next token of each beam.

        Args:
            tokens: [B, W] int64, the newest token of each beam. In the first step W may be 1.
            parents: [B, W] int64, the beam of the previous step that each beam continues.

        Returns:
            [B, W, V] float32, which the caller may overwrite.
        """

    def keep(self, sentences: Sequence[int]) -> None:
        """Reduces the batch to the given sentences, in this order."""


def force(log_probs: Tensor, tokens: Sequence[tuple[int, int]]) -> None:
    """Rules out, in place, all other tokens of some sentences; these keep their log-probabilities.

    Args:
        log_probs: [B, W, V], of the next token.
        tokens: Indices of sentences, and the token that follows in all of their beams.
    """
    if tokens:
        rows, forced = torch.tensor(tokens, device=log_probs.device).T
        kept = log_probs[rows, :, forced]
        log_probs[rows] = -torch.inf
        log_probs[rows, :, forced] = kept


def force_prefixes(
    log_probs: Tensor, prefixes: Sequence[Sequence[int]], active: Sequence[int], t: int
) -> None:
    """Forces, in place, the tokens at position ``t`` of translations that start with prefixes.

    Args:
        log_probs: [B, W, V], of the next token.
        prefixes: Tokens that each translation starts with, of finished ones too.
        active: Index of each of the B sentences in ``prefixes``.
        t: Position of the next token, from 0.
    """
    own = enumerate(prefixes[i] for i in active)
    force(log_probs, [(row, prefix[t]) for row, prefix in own if t < len(prefix)])
