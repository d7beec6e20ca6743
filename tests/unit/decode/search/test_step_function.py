"""Constraints against enumeration of all translations that obey them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.search_tables import (
    ALPHAS,
    BOS,
    EOS,
    TABLES,
    Prefix,
    Table,
    TableModel,
    all_translations,
    path,
    score,
)

from transformer_mt.decode.engine import Hypothesis
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.decode.search.step_function import ConstrainedStep


def obeys(tokens: Prefix, n: int) -> bool:
    ngrams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
    return len(set(ngrams)) == len(ngrams)


def constrained(
    model: ConstrainedStep, limits: list[int], beam_size: int, alpha: float
) -> list[list[Hypothesis]]:
    return beam_search(
        model, limits, beam_size=beam_size, alpha=alpha, bos=BOS, eos=EOS, nbest=beam_size
    )


@given(TABLES, st.integers(2, 4), ALPHAS, st.integers(1, 3), st.integers(0, 3))
def test_wide_beam_equals_enumeration(
    table: Table, limit: int, alpha: float, size: int, n: int
) -> None:
    table = Table(table.seed, min(table.vocab_size, 4), table.eos_cost, ruled_out=0.0)
    width = sum((table.vocab_size - 1) ** length for length in range(limit + 1))
    model = ConstrainedStep(TableModel(table, range(size)), [[]] * size, n, EOS)
    found = constrained(model, [limit] * size, width, alpha)
    for sentence, hypotheses in enumerate(found):
        possible = all_translations(table.of(sentence), table.vocab_size, limit)
        expected = {t: value for t, value in possible.items() if obeys(t, n)}
        got = {tuple(h.tokens): h.log_prob for h in hypotheses}
        assert got == expected
        assert [h.score for h in hypotheses] == pytest.approx(
            sorted((score(v, t, alpha) for t, v in got.items()), reverse=True)
        )


@given(TABLES, st.lists(st.integers(2, 5), max_size=3), st.integers(1, 4), ALPHAS)
def test_prefix_is_forced_and_scored(
    table: Table, prefix: list[int], beam_size: int, alpha: float
) -> None:
    """After it, the search is that of a model that has already generated the prefix."""
    table = Table(table.seed, 6, table.eos_cost, ruled_out=0.0)
    model = ConstrainedStep(TableModel(table, [0]), [prefix], 0, EOS)
    (found,) = constrained(model, [6], beam_size, alpha)
    paid = sum(table(0, tuple(prefix[:i]))[word] for i, word in enumerate(prefix))
    after = TableModel(lambda sentence, tokens: table(sentence, (*prefix, *tokens)), [0])
    (free,) = beam_search(
        after, [6 - len(prefix)], beam_size=beam_size, alpha=0.0, bos=BOS, eos=EOS, nbest=beam_size
    )
    if alpha == 0:
        assert [h.tokens for h in found] == [[*prefix, *h.tokens] for h in free]
        assert [h.log_prob for h in found] == [paid + h.log_prob for h in free]
    assert all(h.tokens[: len(prefix)] == prefix for h in found)
    assert all(h.token_log_probs == path(table.of(0), h.tokens) for h in found)


def test_constraints_follow_their_sentence_when_others_leave_the_batch() -> None:
    def row(_: int, prefix: Prefix) -> list[float]:
        return [-99.0, -0.5, -1.0, -2.0]  # ends as soon as it may

    prefixes = [[], [2, 2, 2], [2], [2, 2]]
    model = ConstrainedStep(TableModel(row, range(4)), prefixes, 0, EOS)
    found = beam_search(model, [9] * 4, beam_size=2, alpha=0.0, bos=BOS, eos=EOS)
    assert [best[0].tokens for best in found] == prefixes
