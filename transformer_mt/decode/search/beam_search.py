"""Beam search over a step function (§6.1); it knows neither the model nor the text.

Shapes: B sentences, W beams, V vocabulary, N = nbest, T = maximum number of steps.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.decode.engine import NAN_MESSAGE, Hypothesis, length_penalty
from transformer_mt.errors import InputError


class StepFunction(Protocol):
    """One decoding step of a model, with its incremental state."""

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Log-probabilities of the next token of each beam.

        Args:
            tokens: [B, W] int64, the newest token of each beam. In the first step W may be 1.
            parents: [B, W] int64, the beam of the previous step that each beam continues.

        Returns:
            [B, W, V] float32, which the caller may overwrite.
        """

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
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Finds the best translations of B sentences.

    Each step considers the 2W best continuations. Those of the best W that end are finished
    hypotheses; the best W that do not end stay in the beam. With ``beam_size`` 1 this is greedy
    search.

    The search of a sentence ends by the rule of ``BeamState.stop_early``. As in fairseq and
    CTranslate2, W finished hypotheses suffice; the authors' code (tensor2tensor) finishes those of
    all 2W continuations that end, and only the bound on live beams ends its search.

    Finished sentences leave the batch.

    Args:
        model: Log-probabilities of the next token; −inf for tokens that are ruled out.
        max_lengths: Maximum number of tokens of each translation, end symbol not counted.
        beam_size: W; at most half the vocabulary.
        alpha: Exponent of the length penalty.
        bos: Id of the start symbol.
        eos: Id of the end symbol.
        nbest: Number of translations to return for each sentence, at most W.
        prefixes: Tokens that each translation starts with, at most ``max_lengths``; may be empty.
        device: Device on which the model takes its tokens.

    Returns:
        For each sentence, 1 to ``nbest`` hypotheses, best first.
    """
    results: list[list[Hypothesis]] = [[] for _ in max_lengths]
    active = list(range(len(max_lengths)))  # index of each sentence of the batch
    state = BeamState(max_lengths, beam_size, nbest, alpha, eos, device)
    state.tokens.fill_(bos)
    tokens, parents = state.tokens[:, :1], state.parents[:, :1]  # at first all beams are the same
    for t in range(max(max_lengths) + 1):  # at its maximum length a sentence ends
        log_probs = model.step(tokens, parents)
        force(log_probs, active, t, max_lengths=max_lengths, eos=eos, prefixes=prefixes)
        state.advance(log_probs)
        done = state.done.tolist()  # synchronises
        if any(done):
            done_rows = [row for row, is_done in enumerate(done) if is_done]
            for row, hypotheses in zip(done_rows, state.hypotheses(done_rows), strict=True):
                results[active[row]] = hypotheses
            if all(done):
                break
            rows = remaining_rows(done)
            active = [active[row] for row in rows]
            model.keep(rows)
            state.keep(rows)
        tokens, parents = state.tokens, state.parents
    if not all(results):  # a score that is not a number is never the best
        raise InputError(NAN_MESSAGE)
    return results


class BeamState:
    """Live beams, their histories and finished hypotheses of B sentences.

    For the arguments see ``beam_search``.
    """

    def __init__(
        self,
        max_lengths: Sequence[int],
        beam_size: int,
        nbest: int,
        alpha: float,
        eos: int,
        device: torch.device | None,
    ):
        self._beam_size, self._alpha, self._eos = beam_size, alpha, eos
        shape = (len(max_lengths), beam_size)
        self._t = 0
        """Steps done."""
        # [B] int64: maximum number of tokens of each sentence's translation.
        self._max_lengths = torch.tensor(max_lengths, dtype=torch.int64, device=device)
        # [B, W] int64: newest token of each live beam.
        self.tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        # [B, W] int64: beam of the step before that each live beam continues.
        self.parents = torch.zeros_like(self.tokens)
        # [B, W] float32: log-probability of each live beam; −inf marks an unused one.
        self._log_probs = torch.zeros(shape, device=device)
        # [T, B, W] int64: token that each step appended to each beam.
        history = (max(max_lengths) + 1, *shape)
        self._token_history = torch.zeros(history, dtype=torch.int64, device=device)
        # [T, B, W] int64: the parents of each step.
        self._parent_history = torch.zeros_like(self._token_history)
        # [T, B, W] float32: log-probability of each appended token.
        self._token_log_probs = torch.zeros(history, device=device)
        # [B, N, 5] float64, which holds all of it exactly; best hypothesis first: score,
        # log-probability, length, beam that ended, log-probability of the end symbol.
        self._finished = torch.zeros(len(max_lengths), nbest, 5, dtype=torch.float64, device=device)
        self._finished[..., 0] = -torch.inf
        # [B] int64: number of hypotheses finished so far.
        self._num_finished = torch.zeros_like(self._max_lengths)
        # [B] bool: whether the best hypotheses of the sentence are final.
        self.done = torch.zeros_like(self._max_lengths, dtype=torch.bool)

    def advance(self, log_probs: Tensor) -> None:
        """One step of the search.

        Args:
            log_probs: [B, W', V], of the next token of the first W' beams; others are ignored.
        """
        values, tokens = log_probs.topk(2 * self._beam_size)  # [B, W', 2W]
        totals = (self._log_probs[:, : log_probs.shape[1], None] + values).flatten(1)
        top, index = totals.topk(2 * self._beam_size)  # [B, 2W], best first
        parents = index // (2 * self._beam_size)
        tokens = tokens.flatten(1).gather(1, index)
        values = values.flatten(1).gather(1, index)
        ends = tokens == self._eos
        self._add_finished(top, parents, values, ends)
        # The best W that do not end, in the same order.
        order = ends.byte().argsort(dim=1, stable=True)[:, : self._beam_size]
        self._log_probs = top.masked_fill(ends, -torch.inf).gather(1, order)
        self.tokens = tokens.gather(1, order)
        self.parents = parents.gather(1, order)
        self._token_history[self._t] = self.tokens
        self._parent_history[self._t] = self.parents
        self._token_log_probs[self._t] = values.gather(1, order)
        self.stop_early()
        self._t += 1

    def stop_early(self) -> None:
        """Marks sentences as done that have W finished hypotheses, or whose N best are certain.

        The latter is exact: log-probabilities only decrease, so the score of a live beam is bounded
        by its log-probability over the penalty of the maximum length (−inf if none is live).
        """
        best = self._log_probs.amax(1).double()
        bound = best / length_penalty((self._max_lengths + 1).double(), self._alpha)
        self.done |= self._num_finished >= self._beam_size
        self.done |= self._finished[:, -1, 0] >= bound

    def _add_finished(self, totals: Tensor, parents: Tensor, values: Tensor, ends: Tensor) -> None:
        """Adds the candidates among the best W that end; all arguments are [B, 2W]."""
        ends = ends & (totals > -torch.inf) & ~self.done[:, None]
        length = torch.tensor(self._t + 1, dtype=torch.float64)
        scores = totals.double() / length_penalty(length, self._alpha)
        scores = scores.masked_fill(~ends, -torch.inf)
        new = torch.stack([scores, totals, torch.full_like(parents, self._t), parents, values], 2)
        merged = torch.cat((self._finished, new[:, : self._beam_size]), 1)
        # Stable: of equal scores, the shorter hypothesis first.
        order = merged[..., 0].sort(dim=1, descending=True, stable=True).indices
        order = order[:, : self._finished.shape[1], None]
        self._finished = merged.gather(1, order.expand(self._finished.shape))
        self._num_finished += ends[:, : self._beam_size].sum(1)

    def keep(self, rows: Sequence[int]) -> None:
        """Reduces the batch to the given sentences, in this order."""
        index = torch.tensor(rows, device=self.done.device)
        for name in (
            "_max_lengths", "tokens", "parents", "_log_probs", "_finished", "_num_finished", "done",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name)[index])
        done, kept = slice(0, self._t), slice(0, len(rows))
        for name in ("_token_history", "_parent_history", "_token_log_probs"):
            history = getattr(self, name)
            history[done, kept] = history[done, index]
            setattr(self, name, history[:, kept])

    def hypotheses(self, rows: Sequence[int]) -> list[list[Hypothesis]]:
        """The finished hypotheses of some sentences, best first."""
        index = torch.tensor(rows, device=self.done.device)
        finished = self._finished[index].cpu()  # [R, N, 5]
        lengths, beams = finished[..., 2].long(), finished[..., 3].long()
        longest = int(lengths.max())
        tokens = self._token_history[:longest, index].cpu()
        parents = self._parent_history[:longest, index].cpu()
        values = self._token_log_probs[:longest, index].cpu()
        path = torch.zeros(longest, *beams.shape, dtype=torch.int64)
        for t in reversed(range(longest)):  # backtracking: the beam of step t
            path[t] = beams
            beams = parents[t].gather(1, beams).where(t < lengths, beams)
        tokens = tokens.gather(2, path).permute(1, 2, 0)
        values = values.gather(2, path).permute(1, 2, 0)
        results: list[list[Hypothesis]] = []
        for sentence in zip(finished.tolist(), tokens.tolist(), values.tolist(), strict=True):
            results.append([])
            for (score, log_prob, length, _, end), ids, terms in zip(*sentence, strict=True):
                if score > -math.inf:
                    n = int(length)
                    results[-1].append(Hypothesis(ids[:n], log_prob, score, [*terms[:n], end]))
        return results


def force(
    log_probs: Tensor,
    active: Sequence[int],
    t: int,
    *,
    max_lengths: Sequence[int],
    eos: int,
    prefixes: Sequence[Sequence[int]] | None,
) -> None:
    """Rules out, in place, all tokens but the one that must follow, which keeps its value.

    That is the next token of a prefix or, at the maximum length, the end symbol; the authors' code
    cuts translations off there, without one.

    Args:
        log_probs: [B, W, V], of the next token.
        active: Index of each of the B sentences in ``max_lengths`` and ``prefixes``.
        t: Position of the next token, from 0.
        max_lengths: Those of ``beam_search``.
        eos: Id of the end symbol.
        prefixes: Those of ``beam_search``.
    """
    tokens = []
    for row, i in enumerate(active):
        if max_lengths[i] == t:
            tokens.append((row, eos))
        elif prefixes is not None and t < len(prefixes[i]):
            tokens.append((row, prefixes[i][t]))
    if tokens:
        rows, forced = torch.tensor(tokens, device=log_probs.device).T
        kept = log_probs[rows, :, forced]
        log_probs[rows] = -torch.inf
        log_probs[rows, :, forced] = kept


def remaining_rows(done: Sequence[bool]) -> list[int]:
    """Indices of the rows that are not done, ordered so that few move: the last fill the gaps."""
    rows = list(range(len(done)))
    for row in reversed(range(len(done))):
        if done[row]:
            rows[row] = rows[-1]
            rows.pop()
    return rows
