"""The learning rate as a function of the step (§5.3)."""

from transformer_mt.config import ScheduleConfig


def learning_rate(step: int, config: ScheduleConfig, *, d_model: int, max_steps: int) -> float:
    """Learning rate of an update.

    ``noam`` is equation (3): d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5).

    Args:
        step: The update, from 1.
        config: Name and parameters of the schedule.
        d_model: Size of the model; enters ``noam``.
        max_steps: Updates in all; enters ``linear``.
    """
    warmup = config.warmup_steps
    factor: float = min(step**-0.5, step * warmup**-1.5)
    if config.name == "noam":
        return d_model**-0.5 * factor
    assert config.peak_lr is not None  # checked by the config
    if config.name == "inverse_sqrt":
        return config.peak_lr * warmup**0.5 * factor
    rise, fall = step / warmup, (max_steps + 1 - step) / max(1, max_steps + 1 - warmup)
    return config.peak_lr * min(rise, fall)
