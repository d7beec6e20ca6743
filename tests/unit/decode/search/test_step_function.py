"""Forced prefixes, against a search that starts behind them."""

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
    path,
)

from transformer_mt.decode.engine import Hypothesis
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.decode.search.step_function import PrefixedStep


def prefixed(
    model: PrefixedStep, limits: list[int], beam_size: int, alpha: float
) -> list[list[Hypothesis]]:
    return beam_search(
        model, limits, beam_size=beam_size, alpha=alpha, bos=BOS, eos=EOS, nbest=beam_size
    )


@given(TABLES, st.lists(st.integers(2, 5), max_size=3), st.integers(1, 4), ALPHAS)
def test_prefix_is_forced_and_scored(
    table: Table, prefix: list[int], beam_size: int, alpha: float
) -> None:
    """After it, the search is that of a model that has already generated the prefix."""
    table = Table(table.seed, 6, table.eos_cost, ruled_out=0.0)
    model = PrefixedStep(TableModel(table, [0]), [prefix])
    (found,) = prefixed(model, [6], beam_size, alpha)
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


def test_prefixes_follow_their_sentence_when_others_leave_the_batch() -> None:
    def row(_: int, prefix: Prefix) -> list[float]:
        return [-99.0, -0.5, -1.0, -2.0]  # ends as soon as it may

    prefixes = [[], [2, 2, 2], [2], [2, 2]]
    model = PrefixedStep(TableModel(row, range(4)), prefixes)
    found = beam_search(model, [9] * 4, beam_size=2, alpha=0.0, bos=BOS, eos=EOS)
    assert [best[0].tokens for best in found] == prefixes
