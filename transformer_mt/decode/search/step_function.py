"""The decoding step that a search calls, and such a step under constraints.

Constraints are a forced prefix and the blocking of n-grams: a token that is ruled out gets −∞; the
others keep their log-probabilities, without rescaling.

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


class ConstrainedStep:
    """A step function under constraints.

    Args:
        model: The step function.
        prefixes: Token ids that each translation starts with.
        no_repeat_ngram: Size of n-grams that may not occur twice, except in the prefix; 0 allows
            all.
        eos: Id of the end symbol.
    """

    def __init__(
        self,
        model: StepFunction,
        prefixes: Sequence[Sequence[int]],
        no_repeat_ngram: int,
        eos: int,
    ):
        self._model, self._no_repeat_ngram, self._eos = model, no_repeat_ngram, eos
        self._prefixes = list(prefixes)
        # [B][W][t] tokens of each beam, without the start symbol; None before the first step.
        self._tokens: list[list[list[int]]] | None = None

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        log_probs = self._model.step(tokens)
        if self._tokens is None:
            self._tokens = [[[] for _ in range(tokens.shape[1])] for _ in self._prefixes]
        else:
            for beams, newest in zip(self._tokens, tokens.tolist(), strict=True):
                for beam, token in zip(beams, newest, strict=True):
                    beam.append(token)
        forced: list[tuple[int, int, int]] = []
        blocked: list[tuple[int, int, int]] = []
        for row, prefix in enumerate(self._prefixes):
            for index, beam in enumerate(self._tokens[row]):
                if len(beam) < len(prefix):
                    forced.append((row, index, prefix[len(beam)]))
                # Sampling continues after the end, to no effect.
                elif self._no_repeat_ngram and self._eos not in beam:
                    repeating = repeating_tokens(beam, self._no_repeat_ngram)
                    blocked += [(row, index, token) for token in repeating]
        force(log_probs, forced)
        if blocked:
            log_probs[tuple(torch.tensor(blocked, device=log_probs.device).T)] = -torch.inf
        return log_probs

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        self._model.select(beams)
        assert self._tokens is not None
        for row, indices in enumerate(beams.tolist()):
            self._tokens[row] = [list(self._tokens[row][index]) for index in indices]

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._model.keep(sentences)
        assert self._tokens is not None
        self._prefixes = [self._prefixes[row] for row in sentences]
        self._tokens = [self._tokens[row] for row in sentences]


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


def repeating_tokens(tokens: list[int], n: int) -> list[int]:
    """The tokens that, appended to ``tokens``, would complete an n-gram that occurred before."""
    start = len(tokens) - n + 1
    if start <= 0:
        return []
    newest = tokens[start:]
    return [tokens[i + n - 1] for i in range(start) if tokens[i : i + n - 1] == newest]
