"""Stopping criteria and intervals."""

from typing import Any

import pytest

from transformer_mt.config import TrainConfig
from transformer_mt.training.stopping import StoppingCriteria
from transformer_mt.training.training_state import TrainingState


def test_intervals_in_epochs_are_converted_to_updates() -> None:
    config = TrainConfig(interval="epoch", validate_every=2, checkpoint_every=1, max_epochs=7)
    criteria = StoppingCriteria(config, steps_per_epoch=54)
    assert (criteria.checkpoint_every, criteria.validate_every, criteria.last_step) == (
        54,
        108,
        378,
    )
    criteria = StoppingCriteria(TrainConfig(interval="epoch"), 54)  # the default is once per epoch
    assert (criteria.checkpoint_every, criteria.validate_every) == (54, 54)
    assert StoppingCriteria(TrainConfig(max_steps=100, max_epochs=7), 54).last_step == 100
    assert StoppingCriteria(TrainConfig(max_steps=10**6, max_epochs=7), 54).last_step == 378


@pytest.mark.parametrize(
    ("at", "last", "over"),
    [
        (TrainingState(step=99), False, False),
        (TrainingState(step=100), True, True),
        (TrainingState(step=101), True, True),  # max_steps was lowered
        (TrainingState(step=40, seconds=3599.0), False, False),
        (TrainingState(step=40, seconds=3600.0), True, True),
        (TrainingState(step=40, validations_without_improvement=2), False, False),
        (TrainingState(step=40, validations_without_improvement=3), False, True),
    ],
)
def test_limits_of_updates_hours_and_patience(at: TrainingState, last: bool, over: bool) -> None:
    criteria = StoppingCriteria(TrainConfig(max_steps=100, max_hours=1.0, patience=3), 54)
    assert (criteria.is_last_update(at), criteria.should_stop(at)) == (last, over)
    assert not StoppingCriteria(TrainConfig(), 54).should_stop(
        TrainingState(step=40, seconds=1e9, validations_without_improvement=10**6)
    )


def test_the_last_weights_are_always_validated() -> None:
    criteria = StoppingCriteria(TrainConfig(max_steps=100, validate_every=30, max_hours=1.0), 54)
    wanted = [step for step in range(110) if criteria.needs_validation(TrainingState(step=step))]
    assert wanted == [30, 60, 90, *range(100, 110)]
    assert criteria.needs_validation(TrainingState(step=41, seconds=3601))


@pytest.mark.parametrize(
    ("config", "at", "reason"),
    [
        ({"max_steps": 700}, TrainingState(step=700), "reached train.max_steps=700"),
        ({"max_epochs": 3}, TrainingState(step=162), "reached train.max_epochs=3"),
        ({"max_hours": 1.5}, TrainingState(step=9, seconds=5400.0), "reached train.max_hours=1.5"),
        (
            {"patience": 10},
            TrainingState(step=9, validations_without_improvement=10),
            "no improvement in 10 validations (train.patience)",
        ),
    ],
)
def test_the_reason_names_the_setting(
    config: dict[str, Any], at: TrainingState, reason: str
) -> None:
    criteria = StoppingCriteria(TrainConfig(**config), steps_per_epoch=54)
    assert criteria.should_stop(at)
    assert criteria.reason(at) == reason
