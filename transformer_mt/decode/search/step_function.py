"""The decoding step that a search calls: of one model, or of an ensemble of models.

Shapes: B sentences, W beams, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.data.subwords.tokenizer import BOS, PAD, UNK
from transformer_mt.model.decoder_state import DecoderState
from transformer_mt.model.transformer import Transformer


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


def make_step_function(
    models: Sequence[Transformer], src: Packed, beam_size: int
) -> "ModelStep | EnsembleStep":
    """Encodes sentences and returns the step function of a model, or of an ensemble."""
    members = [ModelStep(model, model.init_decoder_state(src, beam_size)) for model in models]
    return members[0] if len(members) == 1 else EnsembleStep(members)


class ModelStep:
    """The step function of one model.

    Args:
        model: The model, in ``eval`` mode.
        state: Its decoder state for the sentences.
    """

    capturable = True

    def __init__(self, model: Transformer, state: DecoderState):
        self._model, self._state = model, state

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        state_grew = self._state.reserve(steps)
        return self._model.embedding.reserve(self._state.length) or state_grew

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        logits = self._model.decode_step(tokens, self._state).float()
        log_probs = logits.log_softmax(-1)
        # Never part of a translation. Ruled out after the softmax, in which training gave them
        # probability.
        for token in (PAD, UNK, BOS):
            log_probs[..., token].fill_(-torch.inf)
        return log_probs

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        self._state.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        self._state.keep(sentences)


class EnsembleStep:
    """The mean of the next-token probabilities of several models with one vocabulary."""

    def __init__(self, members: Sequence[StepFunction]):
        self._members = list(members)
        self.capturable = all(member.capturable for member in members)

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        grew = [member.reserve(steps) for member in self._members]  # every member, whatever grew
        return any(grew)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        return log_mean_exp([member.step(tokens) for member in self._members])

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        for member in self._members:
            member.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        for member in self._members:
            member.keep(sentences)


def log_mean_exp(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities that are given as logarithms."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
