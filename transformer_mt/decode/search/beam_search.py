"""Beam search over a step function (§6.1); it knows neither the model nor the text.

Shapes: B sentences, W beams, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.decode.search.beam_state import BeamState
from transformer_mt.decode.search.cuda_graphs import CudaGraphCapturer, CudaGraphStep, Work
from transformer_mt.decode.search.hypothesis import NOT_A_NUMBER, Hypothesis
from transformer_mt.errors import InputError


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


def beam_search(
    model: StepFunction,
    max_lengths: Sequence[int],
    *,
    beam_size: int,
    alpha: float,
    bos: int,
    eos: int,
    nbest: int = 1,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Finds the best translations of B sentences.

    Each step considers the 2W best continuations. Those of the best W that end are finished
    hypotheses; the best W that do not end stay in the beam. With ``beam_size`` 1 this is greedy
    search.

    Early stopping: a sentence is done once it has W finished hypotheses, or once no live beam can
    still get among its ``nbest`` best. The latter is exact: log-probabilities only decrease, so the
    score of a beam is bounded by its log-probability over the penalty of the maximum length.

    Finished sentences leave the batch: on a CPU immediately; on a GPU, where the check would stall
    the device, every few steps, with the steps between replayed from a CUDA graph. Small batches,
    which a GPU decodes no faster when they shrink, stay together.

    Args:
        model: Log-probabilities of the next token; −inf for tokens that are ruled out.
        max_lengths: Maximum number of tokens of each translation, end symbol not counted.
        beam_size: W.
        alpha: Exponent of the length penalty.
        bos: Id of the start symbol.
        eos: Id of the end symbol.
        nbest: Number of translations to return for each sentence, at most W.
        device: Device on which the model takes its tokens.

    Returns:
        For each sentence, 1 to ``nbest`` hypotheses, best first.

    Raises:
        InputError: The model's output is not a number.
    """
    if not 1 <= nbest <= beam_size:
        raise ValueError(f"nbest={nbest} must be between 1 and beam_size={beam_size}")
    results: list[list[Hypothesis]] = [[] for _ in max_lengths]
    active = list(range(len(max_lengths)))  # index of each sentence of the batch
    policy = _step_policy(device or torch.device("cpu"))
    state = BeamState(max_lengths, beam_size, nbest, alpha, eos, device)
    state.tokens.fill_(bos)

    def advance(beams: int) -> None:
        model.select(state.advance(model.step(state.tokens[:, :beams])))

    capture = policy.capturer() if policy.capturer and model.capturable else None
    step = CudaGraphStep(lambda: advance(beam_size), capture)
    t = 0
    while active:
        longest = max(max_lengths[i] for i in active) + 1
        steps = 1 if t == 0 else min(policy.steps_per_check, longest - t)
        if any([model.reserve(steps), state.reserve(steps)]):
            step.invalidate()
        for _ in range(steps):
            if t == 0:
                advance(1)  # all beams are still the same
            else:
                step()
            t += 1
        done, broken = torch.stack((state.done, state.broken)).tolist()  # synchronises
        if any(broken):
            raise InputError(NOT_A_NUMBER)
        min_done = max(1, policy.min_done_share * len(done))
        if not (all(done) or (len(done) > policy.small_batch and sum(done) >= min_done)):
            continue
        done_rows = [row for row, is_done in enumerate(done) if is_done]
        for row, hypotheses in zip(done_rows, state.hypotheses(done_rows), strict=True):
            results[active[row]] = hypotheses
        rows = compact_rows([not is_done for is_done in done])
        active = [active[row] for row in rows]
        if active:
            model.keep(rows)
            state.keep(rows)
            step.invalidate()
    return results


@dataclass(frozen=True)
class _StepPolicy:
    """When a search checks for finished sentences, and how it runs its steps."""

    steps_per_check: int
    """Steps between two checks for finished sentences."""
    min_done_share: float
    """Share of the batch that must be done before finished sentences are removed."""
    small_batch: int
    """Batches of at most this many sentences run until all are done."""
    capturer: Callable[[], Callable[[Work], Work]] | None
    """Makes a function that captures a step as a CUDA graph; None runs every step eagerly."""


def _step_policy(device: torch.device) -> _StepPolicy:
    # The numbers for a GPU are estimates, not measured.
    if device.type == "cuda":
        return _StepPolicy(8, 0.25, 64, CudaGraphCapturer)
    return _StepPolicy(1, 0, 0, None)


def compact_rows(active: Sequence[bool]) -> list[int]:
    """Indices of the active rows, ordered so that few move: the last ones fill the gaps."""
    number = sum(active)
    fillers = (row for row in range(number, len(active)) if active[row])
    return [row if active[row] else next(fillers) for row in range(number)]
