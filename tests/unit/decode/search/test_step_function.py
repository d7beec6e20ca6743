"""Forced prefixes, against a search that starts behind them."""

from hypothesis import given
from hypothesis import strategies as st
from support.search_tables import ALPHAS, BOS, EOS, TABLES, Prefix, Table, TableModel, path

from transformer_mt.decode.search.beam_search import beam_search


@given(TABLES, st.lists(st.integers(2, 5), max_size=3), st.integers(1, 4), ALPHAS)
def test_prefix_is_forced_and_scored(
    table: Table, prefix: list[int], beam_size: int, alpha: float
) -> None:
    """After it, the search is that of a model that has already generated the prefix."""
    table = Table(table.seed, 6, table.eos_cost, ruled_out=0.0)
    search = {"beam_size": beam_size, "bos": BOS, "eos": EOS, "nbest": beam_size}
    model = TableModel(table, [0])
    (found,) = beam_search(model, [6], alpha=alpha, prefixes=[prefix], **search)
    paid = sum(table(0, tuple(prefix[:i]))[word] for i, word in enumerate(prefix))
    after = TableModel(lambda sentence, tokens: table(sentence, (*prefix, *tokens)), [0])
    (free,) = beam_search(after, [6 - len(prefix)], alpha=0.0, **search)
    if alpha == 0:
        assert [h.tokens for h in found] == [[*prefix, *h.tokens] for h in free]
        assert [h.log_prob for h in found] == [paid + h.log_prob for h in free]
    assert all(h.tokens[: len(prefix)] == prefix for h in found)
    assert all(h.token_log_probs == path(table.of(0), h.tokens) for h in found)


def test_prefixes_follow_their_sentence_when_others_leave_the_batch() -> None:
    def row(_: int, prefix: Prefix) -> list[float]:
        return [-99.0, -0.5, -1.0, -2.0]  # ends as soon as it may

    prefixes = [[], [2, 2, 2], [2], [2, 2]]
    model, search = TableModel(row, range(4)), {"beam_size": 2, "bos": BOS, "eos": EOS}
    found = beam_search(model, [9] * 4, alpha=0.0, prefixes=prefixes, **search)
    assert [best[0].tokens for best in found] == prefixes
