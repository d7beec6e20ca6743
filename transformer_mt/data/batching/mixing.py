"""Data mixing: how often the pairs of each training source occur in an epoch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transformer_mt.config import DataConfig
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.errors import InputError

MAX_EPOCH_FACTOR = 100
"""Maximum size of an epoch relative to the corpus; larger ones are refused."""

_SAMPLE_RUNS = 64
"""Runs of neighbouring pairs in a sample of a store."""


def epoch_weights(config: DataConfig, source_sizes: Sequence[int]) -> list[float]:
    """How often a pair of each training source occurs in an epoch.

    Temperature-based sampling as in multilingual training: with p the sources' shares of all pairs,
    batches sample from them in proportion to p^(1/T). T = 1 keeps the shares, a large T makes them
    equal; the pairs of the largest source occur once.

    Args:
        config: Weights or temperature.
        source_sizes: Number of pairs of each source, after cleaning.

    Raises:
        InputError: An epoch would be more than ``MAX_EPOCH_FACTOR`` times as large as the corpus.
    """
    weights = config.weights or [1.0] * len(source_sizes)
    largest = max(source_sizes, default=0)
    times = [
        weight * (largest / size) ** (1 - 1 / config.temperature) if size else 0.0
        for weight, size in zip(weights, source_sizes, strict=True)
    ]
    total = sum(n * size for n, size in zip(times, source_sizes, strict=True))
    if total > MAX_EPOCH_FACTOR * sum(source_sizes):
        raise InputError(
            f"data.weights={list(config.weights)} make an epoch of {total:,.0f} pairs from "
            f"{sum(source_sizes):,}: a weight is how often a pair occurs in an epoch; set it as in "
            "data.weights=[1, 0.5]"
        )
    return times


def sample_epoch(store: TokenStore, weights: Sequence[float], count: int) -> npt.NDArray[np.int64]:
    """Indices of about ``count`` evenly spaced pairs of an epoch; a pair may occur repeatedly.

    With equal weights, pairs in evenly spaced runs, or all if there are no more.
    """
    if len(set(weights)) <= 1:
        run = max(1, count // _SAMPLE_RUNS)
        if len(store) <= count or len(store) < run * _SAMPLE_RUNS:
            return np.arange(len(store))
        starts = np.linspace(0, len(store) - run, _SAMPLE_RUNS).astype(np.int64)
        return (starts[:, None] + np.arange(run)).reshape(-1)
    sizes = np.array(store.source_sizes)
    ends = np.cumsum(weights * sizes)
    positions = np.linspace(0, ends[-1], count, endpoint=False)
    source = np.searchsorted(ends, positions, side="right")
    remaining = np.ceil((ends[source] - positions) / np.array(weights)[source]).astype(np.int64)
    return np.cumsum(sizes)[source] - np.clip(remaining, 1, sizes[source])
