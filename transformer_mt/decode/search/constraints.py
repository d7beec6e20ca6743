"""Decoding constraints on a step function: forced prefix, minimum length, n-gram blocking.

A token that is ruled out gets −∞; the others keep their log-probabilities, without rescaling.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.decode.search.step_function import StepFunction


@dataclass(frozen=True)
class Constraints:
    """Constraints on the translation of one sentence; the defaults allow everything."""

    prefix: Sequence[int] = ()
    """Tokens that the translation starts with."""
    min_length: int = 0
    """Minimum number of tokens, end symbol not counted."""
    no_repeat_ngram: int = 0
    """Size of n-grams that may not occur twice, except in the prefix; 0 disables it."""

    def forced_token(self, position: int) -> int | None:
        """The token of the prefix at a position; None after the prefix."""
        return self.prefix[position] if position < len(self.prefix) else None


class ConstrainedStep:
    """A step function under constraints, given for each sentence."""

    capturable = False  # depends on the tokens so far

    def __init__(self, model: StepFunction, constraints: Sequence[Constraints], eos: int):
        self._model, self._constraints, self._eos = model, list(constraints), eos
        self._tokens: list[list[list[int]]] = [[] for _ in constraints]  # [B][W][t]
        self._blocks_ngrams = any(rule.no_repeat_ngram for rule in constraints)
        self._position = 0

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        return self._model.reserve(steps)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        log_probs = self._model.step(tokens)
        if self._position == 0:  # the start symbol is not part of a translation
            self._tokens = [[[] for _ in range(tokens.shape[1])] for _ in self._constraints]
        elif self._blocks_ngrams:
            for beams, newest in zip(self._tokens, tokens.tolist(), strict=True):
                for beam, token in zip(beams, newest, strict=True):
                    beam.append(token)
        force_tokens(log_probs, [rule.forced_token(self._position) for rule in self._constraints])
        if self._blocks_ngrams:
            self._block_repeated_ngrams(log_probs)
        too_short = [self._position < rule.min_length for rule in self._constraints]
        if any(too_short):
            self._block_end(log_probs, torch.tensor(too_short, device=log_probs.device))
        self._position += 1
        return log_probs

    def _block_repeated_ngrams(self, log_probs: Tensor) -> None:
        """Rules out tokens that would complete an n-gram a second time, in place: [B, W, V]."""
        blocked = [
            (row, index, token)
            for row, rule in enumerate(self._constraints)
            if rule.no_repeat_ngram and rule.forced_token(self._position) is None
            for index, beam in enumerate(self._tokens[row])
            if self._eos not in beam  # sampling continues after the end, to no effect
            for token in repeating_tokens(beam, rule.no_repeat_ngram)
        ]
        if blocked:
            index = tuple(torch.tensor(blocked, device=log_probs.device).T)
            log_probs[index] = -torch.inf

    def _block_end(self, log_probs: Tensor, too_short: Tensor) -> None:
        """Rules out the end symbol in sentences that are too short, [B], in place: [B, W, V]."""
        ends = log_probs[..., self._eos].clone()
        log_probs[..., self._eos] = ends.masked_fill(too_short[:, None], -torch.inf)
        if self._blocks_ngrams:  # a beam may end early where all other tokens are blocked
            stuck = log_probs.amax(-1) == -torch.inf
            log_probs[..., self._eos] = ends.where(stuck, log_probs[..., self._eos])

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        self._model.select(beams)
        if self._blocks_ngrams:
            self._tokens = [
                [list(old[beam]) for beam in chosen]
                for old, chosen in zip(self._tokens, beams.tolist(), strict=True)
            ]

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._model.keep(sentences)
        self._constraints = [self._constraints[row] for row in sentences]
        self._tokens = [self._tokens[row] for row in sentences]


def force_tokens(log_probs: Tensor, forced: Sequence[int | None]) -> None:
    """Rules out all but one token of each sentence in place: [B, W, V]; None allows every token."""
    pairs = [(row, token) for row, token in enumerate(forced) if token is not None]
    if pairs:
        rows, tokens = torch.tensor(pairs, device=log_probs.device).T
        kept = log_probs[rows, :, tokens]
        log_probs[rows] = -torch.inf
        log_probs[rows, :, tokens] = kept


def repeating_tokens(tokens: list[int], n: int) -> list[int]:
    """The tokens that, appended to ``tokens``, would complete an n-gram that occurred before."""
    start = len(tokens) - n + 1
    if start <= 0:
        return []
    newest = tokens[start:]
    return [tokens[i + n - 1] for i in range(start) if tokens[i : i + n - 1] == newest]
