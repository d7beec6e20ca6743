"""Beam search against enumeration of all translations and a reference search; forced prefixes."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.search_tables import (
    ALPHAS,
    BOS,
    EOS,
    TABLES,
    Prefix,
    Table,
    TableModel,
    TiedError,
    all_translations,
    path,
    reference_search,
    score,
    search,
)
from torch import Tensor

from transformer_mt.decode.search.beam_search import beam_search


@given(TABLES, st.lists(st.integers(0, 3), min_size=1, max_size=3), ALPHAS, st.booleans())
def test_wide_beam_equals_enumeration(
    table: Table, limits: list[int], alpha: float, few: bool
) -> None:
    width = sum((table.vocab_size - 1) ** length for length in range(max(limits) + 1))
    nbest = min(3, width) if few else width
    found = search(table, limits, beam_size=width, alpha=alpha, nbest=nbest)
    assert len(found) == len(limits)
    for sentence, (limit, hypotheses) in enumerate(zip(limits, found, strict=True)):
        possible = all_translations(table.of(sentence), table.vocab_size, limit)
        best = sorted((score(v, tokens, alpha) for tokens, v in possible.items()), reverse=True)
        assert [h.score for h in hypotheses] == pytest.approx(best[:nbest])
        # The order of equal scores is undefined.
        assert len({tuple(h.tokens) for h in hypotheses}) == min(nbest, len(possible))
        for h in hypotheses:
            assert h.log_prob == possible[tuple(h.tokens)]
            assert h.score == pytest.approx(score(h.log_prob, tuple(h.tokens), alpha))


@given(
    TABLES,
    st.lists(st.integers(0, 7), min_size=1, max_size=5),
    st.sampled_from([1, 2, 4]),
    ALPHAS,
    st.booleans(),
    st.data(),
)
def test_small_beams_equal_the_reference_search(
    table: Table,
    limits: list[int],
    beam_size: int,
    alpha: float,
    early_stop: bool,
    data: st.DataObject,
) -> None:
    """Early stopping changes nothing: the reference may continue until W have finished.

    The reference searches one sentence at a time; a beam of 1 is greedy search.
    """
    nbest = data.draw(st.integers(1, beam_size))
    try:
        expected = [
            reference_search(
                table.of(sentence),
                limit,
                beam_size=beam_size,
                alpha=alpha,
                nbest=nbest,
                eos=EOS,
                early_stop=early_stop,
            )
            for sentence, limit in enumerate(limits)
        ]
    except TiedError:
        assume(False)
    found = search(table, limits, beam_size=beam_size, alpha=alpha, nbest=nbest)
    assert [[h.tokens for h in best] for best in found] == [
        [h.tokens for h in best] for best in expected
    ]
    for best, wanted in zip(found, expected, strict=True):
        assert 1 <= len(best) <= nbest
        assert [h.log_prob for h in best] == [h.log_prob for h in wanted]
        assert [h.score for h in best] == pytest.approx([h.score for h in wanted])


def test_finished_sentences_leave_the_batch_once_their_best_is_certain() -> None:
    def row(sentence: int, prefix: Prefix) -> list[float]:
        return [-9.0, -0.1 if len(prefix) == sentence else -99.0, -0.5]

    sizes = []

    class Counting(TableModel):
        def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
            sizes.append(sorted(self.sentences))
            return super().step(tokens, parents)

    for beam_size in (1, 4):  # of the wider beam, a second translation would take more steps
        model = Counting(row, range(4))
        found = beam_search(model, [9] * 4, beam_size=beam_size, alpha=0.0, bos=BOS, eos=EOS)
        assert [best[0].tokens for best in found] == [[2] * sentence for sentence in range(4)]
        assert sizes == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]
        sizes.clear()


def test_a_search_ends_once_as_many_as_its_beams_have_finished() -> None:
    """Although by enumeration the best translation is a longer one, whose beam is still live."""

    def row(_: int, prefix: Prefix) -> list[float]:
        end = {0: -1.0, 1: -0.125, 5: 0.0}.get(len(prefix), -9.0)
        return [-9.0, end, 0.0 if prefix else -1.25]

    steps = []

    class Counting(TableModel):
        def step(self, tokens: Tensor, parents: Tensor) -> Tensor:
            steps.append(tokens)
            return super().step(tokens, parents)

    (found,) = beam_search(
        Counting(row, [0]), [5], beam_size=2, alpha=1.0, bos=BOS, eos=EOS, nbest=2
    )
    possible = all_translations(lambda prefix: row(0, prefix), 3, 5)
    assert max(possible, key=lambda tokens: score(possible[tokens], tokens, 1.0)) == (2,) * 5
    assert [h.tokens for h in found] == [[], [2]]
    assert len(steps) == 2


def test_no_early_stopping_while_a_longer_translation_may_win() -> None:
    """−1 now against −1.75, which a length of 5 + 1, and no less, makes −1.75 · 6 / 11 = −0.95."""

    def row(_: int, prefix: Prefix) -> list[float]:
        if not prefix:
            return [-9.0, -1.0, -1.75]
        return [-9.0, 0.0, -9.0] if len(prefix) == 5 else [-9.0, -9.0, 0.0]

    model = TableModel(row, [0])
    ((best,),) = beam_search(model, [5], beam_size=2, alpha=1.0, bos=BOS, eos=EOS)
    assert best.tokens == [2] * 5
    assert best.score == pytest.approx(-1.75 * 6 / 11)


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
