"""Padded shapes: large enough, hardly larger than needed, and few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.batching.micro_batches import padded_lengths, padded_sizes


@given(st.lists(st.integers(1, 10**6)), st.sampled_from([4, 16]))
def test_sizes_have_room_for_padding_and_little_more(numbers: list[int], steps: int) -> None:
    padded = padded_sizes(np.array(numbers, np.int64), steps)
    for number, size in zip(numbers, padded.tolist(), strict=True):
        assert number < size <= max(number + 1, (number + 1) * (steps + 1) / steps)


@pytest.mark.parametrize("steps", [4, 16])
def test_sizes_are_few(steps: int) -> None:
    assert len(np.unique(padded_sizes(np.arange(1024, 8192), steps))) <= 3 * steps + 1


@given(st.lists(st.integers(1, 1500), min_size=1, max_size=60))
def test_padded_lengths_are_long_enough_and_few(lengths: list[int]) -> None:
    padded = padded_lengths(np.array(lengths))
    assert (padded >= lengths).all()
    assert len(np.unique(padded)) <= 15
    # Sequences stay in the order of their lengths.
    order = np.argsort(lengths, kind="stable")
    assert (np.diff(padded[order]) >= 0).all()


def test_a_few_short_sentences_join_longer_ones_and_many_do_not() -> None:
    assert padded_lengths(np.array([16] * 2 + [24] * 50)).tolist() == [24] * 52
    assert padded_lengths(np.array([16] * 500 + [24] * 50)).tolist() == [16] * 500 + [24] * 50
    # The longest are never padded beyond the grid.
    assert padded_lengths(np.array([17, 40])).max() == 48
