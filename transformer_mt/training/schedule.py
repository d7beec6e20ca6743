"""Learning-rate schedules with warm-up (§5.3).

To add one, write a function and register it in ``registries.SCHEDULES``.
"""

from collections.abc import Callable
from functools import cache

from transformer_mt.config import ScheduleConfig
from transformer_mt.registries import SCHEDULES, load

Schedule = Callable[[int, ScheduleConfig, int, int], float]
"""Step (from 1), config, d_model and total number of steps → learning rate."""


def learning_rate(step: int, config: ScheduleConfig, *, d_model: int, max_steps: int) -> float:
    """Learning rate of an update.

    Args:
        step: Number of the update, from 1.
        config: Name and parameters of the schedule.
        d_model: Size of the model, used by ``noam``.
        max_steps: Number of updates of the run, used by ``linear``.
    """
    return _schedule(config.name)(step, config, d_model, max_steps)


@cache
def _schedule(name: str) -> Schedule:
    schedule: Schedule = load(SCHEDULES, name)
    return schedule


def noam(step: int, config: ScheduleConfig, d_model: int, max_steps: int) -> float:
    """Equation (3): d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5)."""
    return d_model**-0.5 * _warmup_then_decay(step, config.warmup_steps)


def inverse_sqrt(step: int, config: ScheduleConfig, d_model: int, max_steps: int) -> float:
    """Same shape as ``noam``, with ``peak_lr`` at the end of the warm-up."""
    assert config.peak_lr is not None  # checked by the config
    return config.peak_lr * config.warmup_steps**0.5 * _warmup_then_decay(step, config.warmup_steps)


def linear(step: int, config: ScheduleConfig, d_model: int, max_steps: int) -> float:
    """Linear warm-up to ``peak_lr``, then linear decay; zero one step after the last."""
    assert config.peak_lr is not None  # checked by the config
    warmup = config.warmup_steps
    rise, fall = step / warmup, (max_steps + 1 - step) / max(1, max_steps + 1 - warmup)
    return config.peak_lr * min(rise, fall)


def _warmup_then_decay(step: int, warmup_steps: int) -> float:
    factor: float = min(step**-0.5, step * warmup_steps**-1.5)
    return factor
