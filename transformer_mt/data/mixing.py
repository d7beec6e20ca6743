"""How often the pairs of each source come in an epoch."""

from collections.abc import Sequence

from transformer_mt.config import DataConfig


def epoch_weights(config: DataConfig, sizes: Sequence[int]) -> list[float]:
    """Times that a pair of each training source comes in an epoch.

    The temperature is that of multilingual training: with p the sources' shares of all pairs,
    batches draw from them by p^(1/T). T = 1 leaves them as they are, a large T makes them equal;
    the largest source is the one whose pairs come once.

    Args:
        config: Weights and temperature.
        sizes: Pairs of each source, after cleaning.
    """
    weights = config.weights or [1.0] * len(sizes)
    largest = max(sizes, default=0)
    return [
        weight * (largest / size) ** (1 - 1 / config.temperature) if size else 0.0
        for weight, size in zip(weights, sizes, strict=True)
    ]
