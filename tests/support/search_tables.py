"""Search problems given by a table of log-probabilities, and a slow reference search for them."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.decode.engine import Hypothesis
from transformer_mt.decode.search.beam_search import beam_search

BOS, EOS = 0, 1
Prefix = tuple[int, ...]
LogProbs = Callable[[Prefix], Sequence[float]]
ALPHAS = st.sampled_from([0.0, 0.6, 1.0])


class TiedError(Exception):
    """Two candidates have equal scores, so their order is undefined."""


def score(log_prob: float, tokens: Prefix, alpha: float) -> float:
    return log_prob / math.pow((5 + len(tokens) + 1) / 6, alpha)


def path(log_probs: LogProbs, tokens: Sequence[int]) -> list[float]:
    """The log-probability of each token of a translation, and of its end."""
    return [log_probs(tuple(tokens[:i]))[word] for i, word in enumerate((*tokens, EOS))]


def all_translations(log_probs: LogProbs, vocab_size: int, limit: int) -> dict[Prefix, float]:
    """Every translation of at most ``limit`` tokens that is not ruled out, with its value."""
    words = [word for word in range(vocab_size) if word != EOS]
    possible = (tokens for n in range(limit + 1) for tokens in product(words, repeat=n))
    values = {tokens: sum(path(log_probs, tokens)) for tokens in possible}
    return {tokens: value for tokens, value in values.items() if value > -math.inf}


def reference_search(
    log_probs: LogProbs,
    max_length: int,
    *,
    beam_size: int,
    alpha: float,
    nbest: int,
    eos: int,
    early_stop: bool,
    margin: float = 0,
) -> list[Hypothesis]:
    """Plain-Python beam search of one sentence as ``beam_search`` describes it.

    Raises:
        TiedError: Two candidates that matter differ by no more than ``margin``.
    """
    alive: list[tuple[float, Prefix]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(max_length + 1):
        candidates = [
            (log_prob + more, prefix, word)
            for log_prob, prefix in alive
            for word, more in enumerate(log_probs(prefix))
            if more > -math.inf and (word == eos or length < max_length)
        ]
        candidates.sort(reverse=True)
        refuse_ties([log_prob for log_prob, _, _ in candidates[: 2 * beam_size + 1]], margin)
        for log_prob, prefix, word in candidates[:beam_size]:
            if word == eos:
                hypothesis = Hypothesis(list(prefix), log_prob, score(log_prob, prefix, alpha))
                finished.append(hypothesis)
        alive = [(value, (*prefix, word)) for value, prefix, word in candidates if word != eos]
        alive = alive[:beam_size]
        finished.sort(key=lambda h: -h.score)
        if not alive or len(finished) >= beam_size:
            break
        if early_stop and len(finished) >= nbest:
            longest = (0,) * max_length
            if finished[nbest - 1].score >= score(alive[0][0], longest, alpha):
                break
    refuse_ties([h.score for h in finished], margin)
    return finished[:nbest]


def refuse_ties(falling: list[float], margin: float) -> None:
    if any(a - b <= margin for a, b in pairwise(falling)):
        raise TiedError


class Table:
    """Random log-probabilities for every prefix of every sentence.

    They are multiples of 2⁻¹⁷, whose sums float32 holds exactly, and need not sum up to one.
    """

    def __init__(self, seed: int, vocab_size: int, eos_cost: float, ruled_out: float):
        self.seed, self.vocab_size = seed, vocab_size
        self.eos_cost, self.ruled_out = eos_cost, ruled_out

    def __call__(self, sentence: int, prefix: Prefix) -> list[float]:
        draw = random.Random(f"{self.seed} {sentence} {prefix}")
        row = [
            -math.inf if draw.random() < self.ruled_out else -draw.randrange(2**19) / 2**17
            for _ in range(self.vocab_size)
        ]
        row[EOS] = -int(draw.randrange(2**19) * self.eos_cost) / 2**17
        return row

    def of(self, sentence: int) -> LogProbs:
        return lambda prefix: self(sentence, prefix)


class TableModel:
    """A step function that looks up log-probabilities by sentence and prefix."""

    def __init__(self, table: Callable[[int, Prefix], list[float]], sentences: Sequence[int]):
        self.table, self.sentences = table, list(sentences)
        self.prefixes: list[list[Prefix]] = []

    def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
        assert tokens.dtype == parents.dtype == torch.int64
        assert tokens.shape == parents.shape
        if not self.prefixes:
            assert set(tokens.flatten().tolist()) == {BOS}
            self.prefixes = [[()] * tokens.shape[1] for _ in self.sentences]
        else:
            chosen = torch.stack((tokens, parents), 2).tolist()
            self.prefixes = [
                [(*row[parent], word) for word, parent in beams]
                for row, beams in zip(self.prefixes, chosen, strict=True)
            ]
        log_probs = torch.tensor(
            [
                [self.table(sentence, prefix) for prefix in row]
                for sentence, row in zip(self.sentences, self.prefixes, strict=True)
            ]
        )
        return F.pad(log_probs, (0, 512), value=-torch.inf)  # a vocabulary wider than the beams

    def keep(self, sentences: Sequence[int]) -> None:
        self.sentences = [self.sentences[row] for row in sentences]
        self.prefixes = [self.prefixes[row] for row in sentences]


TABLES = st.builds(
    Table,
    seed=st.integers(0, 2**32),
    vocab_size=st.integers(3, 6),
    eos_cost=st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    ruled_out=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
)


def search(table: Table, limits: Sequence[int], **settings: float) -> list[list[Hypothesis]]:
    model = TableModel(table, range(len(limits)))
    return beam_search(model, limits, bos=BOS, eos=EOS, **settings)  # type: ignore[arg-type]
