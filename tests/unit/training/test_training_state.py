"""Position of a run: the best validation, and the format of ``state.json``."""

import math
from typing import Any

import pytest

from transformer_mt.training.training_state import TrainingState

NAN = math.nan


@pytest.mark.parametrize(
    ("by", "values", "best", "without_improvement"),
    [
        ("bleu", [10, 12, 11, 12], (12, 2), 2),
        ("nll", [3.0, 2.0, 2.5, 1.0], (1.0, 4), 0),
        ("nll", [3.0, NAN, NAN], (3.0, 1), 2),
        ("bleu", [0.0, 0.0], (0.0, 1), 1),
    ],
)
def test_the_best_validation(
    by: str, values: list[float], best: Any, without_improvement: int
) -> None:
    at = TrainingState()
    for step, value in enumerate(values, 1):
        at.step = step
        at.record_validation(
            {"bleu": 50.0, "nll": 0.0, by: value}, by, higher_is_better=by == "bleu"
        )
    assert (at.best_value, at.best_step) == best
    assert at.validations_without_improvement == without_improvement
    assert TrainingState.from_json({**at.to_json(), "format": 3}) == at


def test_nll_decides_while_bleu_is_0() -> None:
    at = TrainingState()
    best = []
    for step, (bleu, nll) in enumerate([(0, 5.0), (0, 4.0), (0, 4.5), (1, 6.0), (1, 2.0)], 1):
        at.step = step
        at.record_validation({"bleu": float(bleu), "nll": nll}, "bleu", higher_is_better=True)
        best.append(at.best_step)
    assert best == [1, 2, 2, 4, 4]
    old = at.to_json()
    del old["best_nll"]  # the first checkpoints of format 3 lack it
    assert TrainingState.from_json(old).best_value == 1


def test_the_keys_of_a_checkpoint_are_those_of_format_3() -> None:
    assert TrainingState().to_json() == {
        "step": 0,
        "seconds": 0.0,
        "best_step": 0,
        "best": None,
        "best_nll": None,
        "stale": 0,
        "skipped": 0,
        "totals": {},
    }
