"""Progress of a run: stopping criteria and intervals, the best validation, ``state.json``."""

from dataclasses import asdict
from typing import Any

import pytest

from transformer_mt.config import TrainConfig
from transformer_mt.training.progress import StoppingCriteria, TrainingState


def first_of_intervals(criteria: StoppingCriteria) -> list[int]:
    """The steps of a run whose checkpoints may be averaged."""
    steps = range(criteria.max_steps + 1)
    intervals = [criteria.interval(TrainingState(step=step)) for step in steps]
    return [step for step in steps[1:] if intervals[step] > intervals[step - 1]]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (TrainingState(step=99), None),
        (TrainingState(step=100), "reached train.max_steps=100"),
        (TrainingState(step=101), "reached train.max_steps=100"),  # it was lowered
        (TrainingState(step=40, seconds=3599.0), None),
        (TrainingState(step=40, seconds=3600.0), "reached train.max_hours=1.0"),
        (TrainingState(step=40, stale=2), None),
        (TrainingState(step=40, stale=3), "no improvement in 3 validations (train.patience)"),
    ],
)
def test_limits_of_updates_hours_and_patience(at: TrainingState, reason: str | None) -> None:
    criteria = StoppingCriteria(TrainConfig(max_steps=100, max_hours=1.0, patience=3))
    assert criteria.stops(at) == reason
    unlimited = StoppingCriteria(TrainConfig())
    assert unlimited.stops(TrainingState(step=40, seconds=1e9, stale=10**6)) is None


def test_the_last_weights_are_always_validated() -> None:
    criteria = StoppingCriteria(TrainConfig(max_steps=100, validate_every=30, max_hours=1.0))
    wanted = [step for step in range(110) if criteria.needs_validation(TrainingState(step=step))]
    assert wanted == [30, 60, 90, *range(100, 110)]
    assert criteria.needs_validation(TrainingState(step=41, seconds=3601))


@pytest.mark.parametrize("max_steps", [20, 6000, 100_000])
def test_the_default_average_is_that_of_the_last_percents_of_a_run(max_steps: int) -> None:
    # The paper: the last 5 checkpoints of 10 minutes each, of 12 hours (§5.2, §6.1).
    criteria = StoppingCriteria(TrainConfig(max_steps=max_steps))
    averaged = [*first_of_intervals(criteria), max_steps][-5:]  # of few updates, each
    assert 0.92 * max_steps - 5 < averaged[0] < averaged[-1] == max_steps
    if max_steps == 100_000:  # 10 minutes of 0.4 s an update
        assert first_of_intervals(criteria) == list(range(1500, 100_000, 1500))


def test_the_default_interval_of_a_run_limited_by_time_follows_the_time() -> None:
    criteria = StoppingCriteria(TrainConfig(max_hours=1.0))
    intervals = [criteria.interval(TrainingState(step=s, seconds=6.0 * s)) for s in range(601)]
    first = [step for step in range(1, 601) if intervals[step] > intervals[step - 1]]
    assert first == list(range(9, 601, 9))  # 54 seconds are 1.5% of an hour


@pytest.mark.parametrize(
    ("by", "columns", "history", "best"),  # the best step, and how many followed it, each time
    [
        ("bleu", {"bleu": [10, 12, 11, 12]}, [(1, 0), (2, 0), (2, 1), (2, 2)], 12),
        ("nll", {"nll": [3.0, 2.0, 2.5, 1.0]}, [(1, 0), (2, 0), (2, 1), (4, 0)], 1.0),
        # While BLEU is chance or the same, nll decides.
        (
            "bleu",
            {"bleu": [0.02, 0.0, 0.9, 1.0, 1.0, 0.5], "nll": [5, 4, 4.5, 6, 2, 1]},
            [(1, 0), (2, 0), (2, 1), (4, 0), (5, 0), (5, 1)],
            1.0,
        ),
    ],
)
def test_the_best_validation(
    by: str, columns: dict[str, list[Any]], history: list[tuple[int, int]], best: float
) -> None:
    at, found = TrainingState(), []
    for step, row in enumerate(zip(*columns.values(), strict=True), 1):
        at.step = step
        metrics = dict(zip(columns, row, strict=True))
        at.record_validation({"bleu": 50.0, "nll": 0.0, **metrics}, by)
        found.append((at.best_step, at.stale))
    assert found == history
    assert at.best == best
    state = asdict(at)
    assert TrainingState(**state) == at
