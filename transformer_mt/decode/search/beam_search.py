"""Beam search over a step function (§6.1); it knows no model and no text.

Shapes: B sentences, W beams, V vocabulary, t tokens so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.decode.search.beam_state import Beams
from transformer_mt.decode.search.cuda_graphs import CudaGraphStep, Recorder, Work
from transformer_mt.decode.search.hypothesis import NOT_A_NUMBER, Hypothesis
from transformer_mt.errors import InputError


class StepFunction(Protocol):
    """What a search asks of a model."""

    alike: bool
    """Whether ``step`` and ``select`` change tensors in place and nothing else, wait for nothing,
    and do the same work each time, unless ``reserve`` or ``keep`` says otherwise: whether they
    may be recorded."""

    def reserve(self, steps: int) -> bool:
        """Makes room for so many steps; whether buffers grew, so that a recorded step is void."""

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each beam, [B, W] int64 → log-probabilities, [B, W, V] float32.

        They are the caller's, who may overwrite them. In the first step W may be 1.
        """

    def select(self, beams: Tensor) -> None:
        """Goes on, in each sentence, from the beams [B, W]."""

    def keep(self, sentences: Sequence[int]) -> None:
        """Goes on with some sentences alone, in this order; most stay where they are."""


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
    """The best translations of B sentences.

    In each step the 2W best continuations are looked at. Those of the best W that end are
    finished hypotheses; the best W that do not end live on. A sentence is done once it has W
    finished hypotheses, or once no living beam can still get among its ``nbest`` best: a
    log-probability only falls, so a beam's score is bounded by its log-probability over the
    penalty of the longest length. With ``beam_size`` 1 this is greedy search.

    Sentences that are done leave the batch: on a CPU at once. A GPU is asked every few steps, as
    it would stand still meanwhile, and does those steps from a recording; a small batch, which
    takes it no less time than a smaller one, stays together.

    Args:
        model: Log-probabilities of the next token; −inf for tokens it rules out.
        max_lengths: For each sentence, the most tokens of a translation, end symbol not counted.
        beam_size: W.
        alpha: Exponent of the length penalty.
        bos: Id of the start symbol.
        eos: Id of the end symbol.
        nbest: How many translations to return for each sentence, at most W.
        device: Where the model takes its tokens.

    Returns:
        For each sentence, up to ``nbest`` hypotheses, best first, and at least one.

    Raises:
        InputError: The model's output is not a number.
    """
    if not 1 <= nbest <= beam_size:
        raise ValueError(f"nbest={nbest} must be between 1 and beam_size={beam_size}")
    found: list[list[Hypothesis]] = [[] for _ in max_lengths]
    active = list(range(len(max_lengths)))  # the number of each sentence of the batch
    pace = _pace(device or torch.device("cpu"))
    state = Beams(max_lengths, beam_size, nbest, alpha, eos, device)
    state.tokens.fill_(bos)

    def advance(beams: int) -> None:
        model.select(state.advance(model.step(state.tokens[:, :beams])))

    recorder = pace.recorder() if pace.recorder and model.alike else None
    step = CudaGraphStep(lambda: advance(beam_size), recorder)
    t = 0
    while active:
        steps = 1 if t == 0 else min(pace.steps, max(max_lengths[i] for i in active) + 1 - t)
        others = (model.reserve(steps), state.reserve(steps))
        if any(others):
            step.forget()
        for _ in range(steps):
            if t == 0:
                advance(1)  # all beams are the same
            else:
                step()
            t += 1
        done, broken = torch.stack((state.done, state.broken)).tolist()  # here a GPU is waited for
        if any(broken):
            raise InputError(NOT_A_NUMBER)
        enough = len(done) > pace.small and sum(done) >= max(1, pace.leaving * len(done))
        if not (enough or all(done)):
            continue
        gone = [row for row, is_done in enumerate(done) if is_done]
        for row, hypotheses in zip(gone, state.hypotheses(gone), strict=True):
            found[active[row]] = hypotheses
        rows = remaining([not is_done for is_done in done])
        active = [active[row] for row in rows]
        if active:
            model.keep(rows)
            state.keep(rows)
            step.forget()
    return found


@dataclass(frozen=True)
class _Pace:
    """How a search goes on a kind of device."""

    steps: int
    """Steps from one look at what is done to the next."""
    leaving: float
    """The share of the batch that has to be done before it leaves."""
    small: int
    """A batch of so many sentences goes on until all are done."""
    recorder: Callable[[], Callable[[Work], Work]] | None
    """Opens what makes recordings of steps; None does each anew."""


def _pace(device: torch.device) -> _Pace:
    # The numbers for a GPU are guesses: none has been measured yet.
    return _Pace(8, 0.25, 64, Recorder) if device.type == "cuda" else _Pace(1, 0, 0, None)


def remaining(going: Sequence[bool]) -> list[int]:
    """The rows that go on, moved as little as can be: the last of them fill the gaps."""
    number = sum(going)
    fillers = (row for row in range(number, len(going)) if going[row])
    return [row if going[row] else next(fillers) for row in range(number)]
