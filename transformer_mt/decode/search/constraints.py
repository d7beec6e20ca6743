"""What translations must or may not be, as a step function over another one.

A token that is ruled out gets −∞; the others keep their log-probabilities and are not scaled up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.decode.search.beam_search import StepFunction


@dataclass(frozen=True)
class Constraints:
    """What holds for one sentence; without an argument, nothing."""

    prefix: Sequence[int] = ()
    """Tokens that the translation begins with."""
    min_length: int = 0
    """Fewest tokens, end symbol not counted."""
    no_repeat_ngram: int = 0
    """No sequence of this many tokens occurs twice, but in the prefix; 0 allows all."""

    def forced(self, position: int) -> int | None:
        """The token that must stand at a position, if one must."""
        return self.prefix[position] if position < len(self.prefix) else None


class Constrained:
    """A model under constraints.

    Args:
        model: The model.
        constraints: Of each sentence.
        eos: Id of the end symbol.
    """

    alike = False  # what may be said depends on what was said

    def __init__(self, model: StepFunction, constraints: Sequence[Constraints], eos: int):
        self._model, self._constraints, self._eos = model, list(constraints), eos
        self._said: list[list[list[int]]] = [[] for _ in constraints]  # [B][W][t]
        self._remembers = any(rule.no_repeat_ngram for rule in constraints)
        self._position = 0

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        return self._model.reserve(steps)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        log_probs = self._model.step(tokens)
        if self._position == 0:
            # The start symbol is not said.
            self._said = [[[] for _ in range(tokens.shape[1])] for _ in self._constraints]
        elif self._remembers:
            for beams, newest in zip(self._said, tokens.tolist(), strict=True):
                for said, token in zip(beams, newest, strict=True):
                    said.append(token)
        self._force(log_probs)
        if self._remembers:
            self._rule_out_repetitions(log_probs)
        early = [self._position < rule.min_length for rule in self._constraints]
        if any(early):
            self._go_on(log_probs, torch.tensor(early, device=log_probs.device))
        self._position += 1
        return log_probs

    def _force(self, log_probs: Tensor) -> None:
        """Leaves sentences the one token that their prefix has here, in place: [B, W, V]."""
        forced = [rule.forced(self._position) for rule in self._constraints]
        pairs = [(row, token) for row, token in enumerate(forced) if token is not None]
        if pairs:
            rows, tokens = torch.tensor(pairs, device=log_probs.device).T
            kept = log_probs[rows, :, tokens]
            log_probs[rows] = -torch.inf
            log_probs[rows, :, tokens] = kept

    def _rule_out_repetitions(self, log_probs: Tensor) -> None:
        """Forbids what would say an n-gram again, in place: [B, W, V]."""
        places = [
            (row, beam, token)
            for row, rule in enumerate(self._constraints)
            if rule.no_repeat_ngram and rule.forced(self._position) is None
            for beam, said in enumerate(self._said[row])
            if self._eos not in said  # sampling goes on behind an end, to no effect
            for token in repeating(said, rule.no_repeat_ngram)
        ]
        if places:
            index = tuple(torch.tensor(places, device=log_probs.device).T)
            log_probs[index] = -torch.inf

    def _go_on(self, log_probs: Tensor, early: Tensor) -> None:
        """Lets the sentences that are ``early``, [B], not end yet, in place: [B, W, V]."""
        ends = log_probs[..., self._eos].clone()
        log_probs[..., self._eos] = ends.masked_fill(early[:, None], -torch.inf)
        if self._remembers:  # where all words would repeat, it may end after all
            stuck = log_probs.amax(-1) == -torch.inf
            log_probs[..., self._eos] = ends.where(stuck, log_probs[..., self._eos])

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        self._model.select(beams)
        if self._remembers:
            self._said = [
                [list(said[beam]) for beam in chosen]
                for said, chosen in zip(self._said, beams.tolist(), strict=True)
            ]

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._model.keep(sentences)
        self._constraints = [self._constraints[row] for row in sentences]
        self._said = [self._said[row] for row in sentences]


def repeating(tokens: list[int], n: int) -> list[int]:
    """The tokens that, said next, would say a sequence of ``n`` tokens a second time."""
    start = len(tokens) - n + 1
    if start <= 0:
        return []
    newest = tokens[start:]
    return [tokens[i + n - 1] for i in range(start) if tokens[i : i + n - 1] == newest]
