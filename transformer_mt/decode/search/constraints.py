"""Decoding constraints on a step function: forced prefix, minimum length, n-gram blocking.

A token that is ruled out gets −∞; the others keep their log-probabilities, without rescaling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transformer_mt.decode.engines.engine import Prefix
from transformer_mt.decode.search.step_function import StepFunction


@dataclass(frozen=True)
class Constraints:
    """Constraints on the translation of one sentence; the defaults allow everything."""

    prefix: Prefix = field(default_factory=Prefix)
    """What the translation starts with."""
    min_length: int = 0
    """Minimum number of tokens, end symbol not counted."""
    no_repeat_ngram: int = 0
    """Size of n-grams that may not occur twice, except in the prefix; 0 disables it."""

    def forced_token(self, position: int) -> int | None:
        """The token of the prefix at a position; None after these tokens."""
        tokens = self.prefix.tokens
        return tokens[position] if position < len(tokens) else None

    def is_spelling(self, spelled: int) -> bool:
        """Whether the prefix has a word of which only so many characters are spelled."""
        return spelled < len(self.prefix.word)


class ConstrainedStep:
    """A step function under constraints, given for each sentence."""

    capturable = False  # depends on the tokens so far

    def __init__(self, model: StepFunction, constraints: Sequence[Constraints], eos: int):
        self._model, self._constraints, self._eos = model, list(constraints), eos
        self._tokens: list[list[list[int]]] = [[] for _ in constraints]  # [B][W][t]
        self._spelled: list[list[int]] = [[] for _ in constraints]  # [B][W] characters
        self._blocks_ngrams = any(rule.no_repeat_ngram for rule in constraints)
        self._spells = any(rule.prefix.word for rule in constraints)
        self._position = 0

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        return self._model.reserve(steps)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        log_probs = self._model.step(tokens)
        if self._position == 0:  # the start symbol is not part of a translation
            self._tokens = [[[] for _ in range(tokens.shape[1])] for _ in self._constraints]
            self._spelled = [[0] * tokens.shape[1] for _ in self._constraints]
        elif self._blocks_ngrams or self._spells:
            self._append(tokens.tolist())
        if self._spells:
            self._allow_spellings(log_probs)
        force_tokens(log_probs, [rule.forced_token(self._position) for rule in self._constraints])
        if self._blocks_ngrams:
            self._block_repeated_ngrams(log_probs)
        too_short = [self._position < rule.min_length for rule in self._constraints]
        if any(too_short):
            self._block_end(log_probs, torch.tensor(too_short, device=log_probs.device))
        self._position += 1
        return log_probs

    def _append(self, newest: list[list[int]]) -> None:
        """Records the newest token of each beam, [B][W]."""
        for row, tokens in enumerate(newest):
            prefix = self._constraints[row].prefix
            for index, token in enumerate(tokens):
                self._tokens[row][index].append(token)
                spelled = self._spelled[row][index]
                if self._position > len(prefix.tokens) and spelled < len(prefix.word):
                    self._spelled[row][index] = prefix.word[spelled].get(token, spelled)

    def _allow_spellings(self, log_probs: Tensor) -> None:
        """Rules out tokens that do not continue an unfinished word, in place: [B, W, V]."""
        for row, rule in enumerate(self._constraints):
            for index, spelled in enumerate(self._spelled[row]):
                if self._position >= len(rule.prefix.tokens) and rule.is_spelling(spelled):
                    allowed = torch.tensor([*rule.prefix.word[spelled]], device=log_probs.device)
                    kept = log_probs[row, index, allowed]
                    log_probs[row, index] = -torch.inf
                    log_probs[row, index, allowed] = kept

    def _block_repeated_ngrams(self, log_probs: Tensor) -> None:
        """Rules out tokens that would complete an n-gram a second time, in place: [B, W, V]."""
        blocked = [
            (row, index, token)
            for row, rule in enumerate(self._constraints)
            if rule.no_repeat_ngram and rule.forced_token(self._position) is None
            for index, beam in enumerate(self._tokens[row])
            if not rule.is_spelling(self._spelled[row][index])
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
        if self._blocks_ngrams or self._spells:
            for row, indices in enumerate(beams.tolist()):
                self._tokens[row] = [list(self._tokens[row][index]) for index in indices]
                self._spelled[row] = [self._spelled[row][index] for index in indices]

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._model.keep(sentences)
        self._constraints = [self._constraints[row] for row in sentences]
        self._tokens = [self._tokens[row] for row in sentences]
        self._spelled = [self._spelled[row] for row in sentences]


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
