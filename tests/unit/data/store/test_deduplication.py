"""Duplicates by hash."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.store.deduplication import first_occurrences


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=50))
def test_first_occurrences(numbers: list[int]) -> None:
    seen: set[int] = set()
    expected = []
    for number in numbers:
        expected.append(number not in seen)
        seen.add(number)
    assert first_occurrences(np.array(numbers, np.uint64)).tolist() == expected


def test_first_occurrences_of_many() -> None:
    hashes = np.random.default_rng(1).integers(0, 50_000, 200_000, np.uint64)
    first = first_occurrences(hashes)
    assert sorted(np.flatnonzero(first)) == sorted(np.unique(hashes, return_index=True)[1])
