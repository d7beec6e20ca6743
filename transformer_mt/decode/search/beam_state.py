"""The beams of a beam search, as tensors that a step changes in place.

So a step is the same work each time, and a GPU can repeat it from a recording.

Shapes: B sentences, W beams, V vocabulary, t tokens so far.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.decode.search.hypothesis import Hypothesis, length_penalty

_ROOM = 32
"""Steps; few translations are longer."""


class Beams:
    """The beams of B sentences; a step changes these tensors in place."""

    def __init__(
        self,
        limits: Sequence[int],
        beam_size: int,
        nbest: int,
        alpha: float,
        eos: int,
        device: torch.device | None,
    ):
        self._beam_size, self._alpha, self._eos = beam_size, alpha, eos
        shape = (len(limits), beam_size)
        self._t = torch.zeros((), dtype=torch.int64, device=device)
        self._limits = torch.tensor(limits, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        """[B, W], the newest of each beam."""
        self._totals = torch.zeros(shape, device=device)  # their log-probabilities
        # [≥ t, B, W]: what each step added, and to which of the beams before it.
        self._words = torch.zeros(0, *shape, dtype=torch.int64, device=device)
        self._parents = torch.zeros_like(self._words)
        self._values = torch.zeros(0, *shape, device=device)
        self._length = 0  # steps that there is to be room for
        # [B, nbest, 5], best first: score, log-probability, length, the beam that ended, and the
        # end symbol's log-probability. float64 holds all of it exactly.
        self._finished = torch.zeros(len(limits), nbest, 5, dtype=torch.float64, device=device)
        self._finished[..., 0] = -torch.inf
        self._number = torch.zeros_like(self._limits)  # of finished hypotheses
        self.done = torch.zeros_like(self._limits, dtype=torch.bool)
        """[B], whether a sentence's best are certain."""
        self.broken = torch.zeros_like(self.done)
        """[B], whether its model gave what is not a number."""

    def reserve(self, steps: int) -> bool:
        """Makes room for so many steps; whether buffers grew, so that a recorded step is void."""
        self._length += steps
        room = len(self._words)
        if self._length <= room:
            return False
        more = max(self._length - room, room, _ROOM)
        for name in ("_words", "_parents", "_values"):
            history = getattr(self, name)
            setattr(self, name, torch.cat((history, history.new_zeros(more, *history.shape[1:]))))
        return True

    def advance(self, log_probs: Tensor) -> Tensor:
        """One step, for which there has to be room.

        Args:
            log_probs: [B, W', V], of what follows the first W' beams; the others are not looked at.

        Returns:
            [B, W] int64, for each beam that goes on the one that it goes on from.
        """
        beams = log_probs.shape[1]
        values, words = self._continuations(log_probs)  # [B, W', k], of each beam
        k, wanted = values.shape[2], 2 * self._beam_size
        totals = (self._totals[:, :beams, None] + values).flatten(1)
        missing = max(0, wanted - totals.shape[1])
        totals = F.pad(totals, (0, missing), value=-torch.inf) if missing else totals
        top, index = totals.topk(wanted)  # [B, 2W], best first
        index = index.clamp(max=beams * k - 1)
        slots, words, values = (
            index // k,
            words.flatten(1).gather(1, index),
            values.flatten(1).gather(1, index),
        )
        self.broken |= top[:, 0].isnan() & ~self.done
        ends = words == self._eos
        self._finish(top, slots, values, ends)
        # Those that do not end, in the same order.
        order = ends.byte().argsort(dim=1, stable=True)[:, : self._beam_size]
        self._totals.copy_(top.masked_fill(ends, -torch.inf).gather(1, order))
        self.tokens.copy_(words.gather(1, order))
        slots = slots.gather(1, order)
        at = self._t[None]
        self._words.index_copy_(0, at, self.tokens[None])
        self._parents.index_copy_(0, at, slots[None])
        self._values.index_copy_(0, at, values.gather(1, order)[None])
        best_alive = self._totals.amax(1)
        bound = best_alive.double() / length_penalty((self._limits + 1).double(), self._alpha)
        self.done |= (self._number >= self._beam_size) | (best_alive == -torch.inf)
        self.done |= self._finished[:, -1, 0] >= bound
        self._t += 1
        return slots

    def _continuations(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """The best of each beam, [B, W', V] → log-probabilities and tokens, [B, W', ≤ 2W].

        A translation of the longest length can but end. It is scored with its end symbol; the
        authors' code leaves it without one.
        """
        values, words = best(log_probs, 2 * self._beam_size)
        full = (self._limits == self._t)[:, None, None]
        only_end = torch.full_like(values, -torch.inf)
        only_end[..., 0] = log_probs[..., self._eos]
        return only_end.where(full, values), words.masked_fill(full, self._eos)

    def _finish(self, totals: Tensor, slots: Tensor, values: Tensor, ends: Tensor) -> None:
        """Takes note of those of the best W that end; [B, 2W] each."""
        first = slice(0, self._beam_size)
        totals, slots, values, ends = (x[:, first] for x in (totals, slots, values, ends))
        ends = ends & (totals > -torch.inf) & ~self.done[:, None]
        scores = totals.double() / length_penalty((self._t + 1).double(), self._alpha)
        scores = scores.masked_fill(~ends, -torch.inf)
        length = self._t.expand(scores.shape)
        new = torch.stack([scores, *(x.double() for x in (totals, length, slots, values))], 2)
        every = torch.cat((self._finished, new), 1)
        # Stable: of equals the shorter one.
        order = every[..., 0].sort(dim=1, descending=True, stable=True).indices
        order = order[:, : self._finished.shape[1], None]
        self._finished.copy_(every.gather(1, order.expand(self._finished.shape)))
        self._number += ends.sum(1)

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with some sentences alone, in this order."""
        index = torch.tensor(rows, device=self.done.device)
        for name in ("_limits", "tokens", "_totals", "_finished", "_number", "done", "broken"):
            setattr(self, name, getattr(self, name)[index])
        for name in ("_words", "_parents", "_values"):
            setattr(self, name, getattr(self, name)[:, index])

    def hypotheses(self, rows: Sequence[int]) -> list[list[Hypothesis]]:
        """The finished ones of some sentences, best first."""
        index = torch.tensor(rows, device=self.done.device)
        finished = self._finished[index].cpu()  # [R, nbest, 5]
        lengths, slots = finished[..., 2].long(), finished[..., 3].long()
        longest = int(lengths.max())
        words, parents, values = (
            x[:longest, index].cpu() for x in (self._words, self._parents, self._values)
        )
        path = torch.zeros(longest, *slots.shape, dtype=torch.int64)
        for t in reversed(range(longest)):  # in step t it is this beam
            path[t] = slots
            slots = parents[t].gather(1, slots).where(t < lengths, slots)
        tokens, log_probs = (x.gather(2, path).permute(1, 2, 0).tolist() for x in (words, values))
        return [
            [
                self._hypothesis(each, of_tokens[: int(length)], [*terms[: int(length)], end])
                for (score, each, length, _, end), of_tokens, terms in zip(*three, strict=True)
                if score > -math.inf
            ]
            for three in zip(finished.tolist(), tokens, log_probs, strict=True)
        ]

    def _hypothesis(self, log_prob: float, tokens: list[int], terms: list[float]) -> Hypothesis:
        score = log_prob / length_penalty(len(terms), self._alpha)
        return Hypothesis(tokens, log_prob, score, terms)


def best(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``values.topk(k)`` over many values: [..., V] → [..., k] twice, or all if there are less.

    The best of V are among the columns, of V written as a matrix, that have the k best maxima; a
    maximum over rows is quickly found. (A GPU's ``topk`` goes over all values five times.)
    """
    size = values.shape[-1]
    height = int((size / k) ** 0.5)
    width = size // max(height, 1)
    if height < 4 or width < k:
        return values.topk(min(k, size))
    matrix = values[..., : height * width].unflatten(-1, (height, width))
    columns = matrix.amax(-2).topk(k).indices  # [..., k]
    every = torch.arange(size, device=values.device)
    places = every[: height * width : width, None] + columns[..., None, :]  # [..., height, k]
    rest = every[height * width :].expand(*values.shape[:-1], -1)
    places = torch.cat((places.flatten(-2), rest), -1)
    top, index = values.gather(-1, places).topk(k)
    return top, places.gather(-1, index)
