"""Models as the search sees them: one, or several that translate as one."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.data.subwords.tokenizer import BOS, PAD, UNK
from transformer_mt.decode.search.beam_search import StepFunction
from transformer_mt.model.decoder_state import DecoderState
from transformer_mt.model.transformer import Transformer


def open_search(models: Sequence[Transformer], src: Packed, beam_size: int) -> StepFunction:
    """A search for the translations of sentences, by one model or by the mean of several."""
    members = [_Single(model, model.init_decoder_state(src, beam_size)) for model in models]
    return members[0] if len(members) == 1 else Ensemble(members)


class _Single:
    """One model."""

    alike = True

    def __init__(self, model: Transformer, state: DecoderState):
        self._model, self._state = model, state

    def reserve(self, steps: int) -> bool:
        is_other = self._state.reserve(steps)
        return self._model.embedding.reserve(self._state.length) or is_other

    def step(self, tokens: Tensor) -> Tensor:
        logits = self._model.decode_step(tokens, self._state).float()
        log_probs = logits.log_softmax(-1)
        # No translation holds these; ruled out after the softmax, which training gave them a
        # share of.
        for token in (PAD, UNK, BOS):
            log_probs[..., token].fill_(-torch.inf)
        return log_probs

    def select(self, beams: Tensor) -> None:
        self._state.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        self._state.keep(sentences)


class Ensemble:
    """Models of one vocabulary; the probability of a token is the mean of theirs."""

    def __init__(self, members: Sequence[StepFunction]):
        self._members = list(members)
        self.alike = all(member.alike for member in members)

    def reserve(self, steps: int) -> bool:
        """See ``StepFunction``."""
        others = [member.reserve(steps) for member in self._members]  # all of them, in any case
        return any(others)

    def step(self, tokens: Tensor) -> Tensor:
        """See ``StepFunction``."""
        return log_mean([member.step(tokens) for member in self._members])

    def select(self, beams: Tensor) -> None:
        """See ``StepFunction``."""
        for member in self._members:
            member.select(beams)

    def keep(self, sentences: Sequence[int]) -> None:
        """See ``StepFunction``."""
        for member in self._members:
            member.keep(sentences)


def log_mean(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities, from their logarithms."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
