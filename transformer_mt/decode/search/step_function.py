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
