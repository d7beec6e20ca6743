"""How often the pairs of each source come in an epoch."""

from collections.abc import Sequence

from transformer_mt.config import DataConfig
from transformer_mt.errors import InputError

MOST = 100
"""An epoch is planned in memory; weights that make more of the pairs are taken for a mistake."""


def epoch_weights(config: DataConfig, sizes: Sequence[int]) -> list[float]:
    """Times that a pair of each training source comes in an epoch.

    The temperature is that of multilingual training: with p the sources' shares of all pairs,
    batches draw from them by p^(1/T). T = 1 leaves them as they are, a large T makes them equal;
    the pairs of the largest source come once (times its weight).

    Args:
        config: Weights and temperature.
        sizes: Pairs of each source, after cleaning.

    Raises:
        InputError: An epoch would have more than ``MOST`` times the pairs that there are.
    """
    weights = config.weights or [1.0] * len(sizes)
    largest = max(sizes, default=0)
    times = [
        weight * (largest / size) ** (1 - 1 / config.temperature) if size else 0.0
        for weight, size in zip(weights, sizes, strict=True)
    ]
    drawn = sum(often * size for often, size in zip(times, sizes, strict=True))
    if drawn > MOST * sum(sizes):
        raise InputError(
            f"data.weights={list(config.weights)} make an epoch of {drawn:,.0f} pairs out of "
            f"{sum(sizes):,}: they say how often a pair comes in an epoch, as [1, 0.5]"
        )
    return times
