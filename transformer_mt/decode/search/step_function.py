"""The decoding step that a search calls: of one model or an ensemble, also under constraints.

Constraints are a forced prefix, a minimum length and the blocking of n-grams: a token that is ruled
out gets −∞; the others keep their log-probabilities, without rescaling.

Shapes: B sentences, W beams, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.data.subwords.tokenizer import BOS, PAD, UNK
from transformer_mt.decode.engines.engine import Prefix
from transformer_mt.model.transformer import Transformer

NAN_MESSAGE = (
    "the model's output is not a number: its weights are damaged, or its training diverged"
)


class StepFunction(Protocol):
    """One decoding step of a model, with its incremental state."""

    capturable: bool
    """Whether ``step`` and ``select`` can be captured in a CUDA graph: they only change tensors in
    place, never synchronise with the device, and do the same work in each call until ``reserve``
    returns True or ``keep`` is called."""

    def reserve(self, steps: int) -> bool:
        """Allocates room for ``steps`` more steps; returns whether buffers were reallocated, which
        invalidates a captured step.
        """

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each beam, [B, W] int64 → log-probabilities, [B, W, V] float32.

        The caller may overwrite the result. In the first step W may be 1.
        """

    def select(self, beams: Tensor) -> None:
        """Reorders the beams of each sentence; ``beams`` [B, W] int64 are their old indices."""

    def keep(self, sentences: Sequence[int]) -> None:
        """Reduces the batch to the given sentences, in this order."""


class ModelStep:
    """The step function of one model, or of an ensemble that averages probabilities.

    The models are in ``eval`` mode and share a vocabulary; ``src`` is packed as one bucket.
    """

    capturable = True

    def __init__(self, models: Sequence[Transformer], src: Packed, beam_size: int):
        self._models = models
        self._states = [model.init_decoder_state(src, beam_size) for model in models]

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        grew = [state.reserve(steps) for state in self._states]
        grew += [
            model.embedding.reserve(state.length)
            for model, state in zip(self._models, self._states, strict=True)
        ]
        return any(grew)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        members = []
        for model, state in zip(self._models, self._states, strict=True):
            log_probs = model.decode_step(tokens, state).float().log_softmax(-1)
            # Never part of a translation. Ruled out after the softmax, in which training gave them
            # probability.
            for token in (PAD, UNK, BOS):
                log_probs[..., token].fill_(-torch.inf)
            members.append(log_probs)
        return log_mean_exp(members)

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        for state in self._states:
            state.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        for state in self._states:
            state.keep(sentences)


def log_mean_exp(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities that are given as logarithms."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


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
