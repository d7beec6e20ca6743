"""The decoding step that a search calls, and such a step with forced prefixes.

Of a prefix, all other tokens get −∞; its own keep their log-probabilities, without rescaling.

Shapes: B sentences, W beams, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class StepFunction(Protocol):
    """One decoding step of a model, with its incremental state."""

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each beam, [B, W] int64 → log-probabilities, [B, W, V] float32.

        The caller may overwrite the result. In the first step W may be 1.
        """

    def select(self, beams: Tensor) -> None:
        """Reorders the beams of each sentence; ``beams`` [B, W] int64 are their old indices."""

    def keep(self, sentences: Sequence[int]) -> None:
        """Reduces the batch to the given sentences, in this order."""


class PrefixedStep:
    """A step function of which each translation starts with given tokens.

    Args:
        model: The step function.
        prefixes: Token ids that each translation starts with; may be empty.
    """

    def __init__(self, model: StepFunction, prefixes: Sequence[Sequence[int]]):
        self._model, self._prefixes, self._position = model, list(prefixes), 0

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        log_probs, t = self._model.step(tokens), self._position
        own = [(row, prefix[t]) for row, prefix in enumerate(self._prefixes) if t < len(prefix)]
        beams = range(tokens.shape[1])
        force(log_probs, [(row, beam, token) for row, token in own for beam in beams])
        self._position += 1
        return log_probs

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        self._model.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._model.keep(sentences)
        self._prefixes = [self._prefixes[row] for row in sentences]


def force(log_probs: Tensor, forced: Sequence[tuple[int, int, int]]) -> None:
    """Rules out, in place, all other tokens of some beams.

    Args:
        log_probs: [B, W, V].
        forced: Sentence, beam and its token.
    """
    if forced:
        rows, beams, tokens = torch.tensor(forced, device=log_probs.device).T
        kept = log_probs[rows, beams, tokens]
        log_probs[rows, beams] = -torch.inf
        log_probs[rows, beams, tokens] = kept
