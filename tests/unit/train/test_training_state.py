"""Where a run stands, and when it ends: by hand, and cut at every place."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.config import TrainConfig
from transformer_mt.distributed import World
from transformer_mt.train.metric_sums import MetricSums
from transformer_mt.train.step import StepResult
from transformer_mt.train.stopping import StoppingCriteria
from transformer_mt.train.training_state import TrainingState

CPU = World(torch.device("cpu"))
NAN = math.nan


@pytest.mark.parametrize(
    ("by", "values", "best", "stale"),
    [
        ("bleu", [10, 12, 11, 12], (12, 2), 2),
        ("nll", [3.0, 2.0, 2.5, 1.0], (1.0, 4), 0),
        ("nll", [3.0, NAN, NAN], (3.0, 1), 2),
        ("bleu", [0.0, 0.0], (0.0, 1), 1),
    ],
)
def test_the_best_validation(by: str, values: list[float], best: Any, stale: int) -> None:
    at = TrainingState()
    for step, value in enumerate(values, 1):
        at.step = step
        at.validated({"bleu": 50.0, "nll": 0.0, by: value}, by)
    assert (at.best, at.best_step) == best
    assert at.stale == stale
    assert TrainingState.from_state({**at.to_state(), "format": 3}) == at


def test_perplexity_decides_while_bleu_is_0() -> None:
    at = TrainingState()
    best = []
    for step, (bleu, nll) in enumerate([(0, 5.0), (0, 4.0), (0, 4.5), (1, 6.0), (1, 2.0)], 1):
        at.step = step
        at.validated({"bleu": float(bleu), "nll": nll}, "bleu")
        best.append(at.best_step)
    assert best == [1, 2, 2, 4, 4]
    old = at.to_state()
    del old["best_nll"]  # a checkpoint of an older version
    assert TrainingState.from_state(old).best == 1


def test_epochs_are_counted_in_updates() -> None:
    config = TrainConfig(interval="epoch", validate_every=2, checkpoint_every=1, max_epochs=7)
    limits = StoppingCriteria.of(config, steps_per_epoch=54)
    assert (limits.checkpoint_every, limits.validate_every, limits.last_step) == (54, 108, 378)
    limits = StoppingCriteria.of(TrainConfig(interval="epoch"), 54)  # once an epoch, unless told
    assert (limits.checkpoint_every, limits.validate_every) == (54, 54)
    assert StoppingCriteria.of(TrainConfig(max_steps=100, max_epochs=7), 54).last_step == 100
    assert StoppingCriteria.of(TrainConfig(max_steps=10**6, max_epochs=7), 54).last_step == 378


@pytest.mark.parametrize(
    ("at", "last", "over"),
    [
        (TrainingState(step=99), False, False),
        (TrainingState(step=100), True, True),
        (TrainingState(step=101), True, True),  # max_steps was lowered
        (TrainingState(step=40, seconds=3599.0), False, False),
        (TrainingState(step=40, seconds=3600.0), True, True),
        (TrainingState(step=40, stale=2), False, False),
        (TrainingState(step=40, stale=3), False, True),
    ],
)
def test_a_run_ends_by_updates_by_hours_or_by_patience(
    at: TrainingState, last: bool, over: bool
) -> None:
    limits = StoppingCriteria.of(TrainConfig(max_steps=100, max_hours=1.0, patience=3), 54)
    assert (limits.is_last(at), limits.is_over(at)) == (last, over)
    assert not StoppingCriteria.of(TrainConfig(), 54).is_over(
        TrainingState(step=40, seconds=1e9, stale=10**6)
    )


def test_the_last_weights_are_validated_whenever_they_come() -> None:
    limits = StoppingCriteria.of(TrainConfig(max_steps=100, validate_every=30, max_hours=1.0), 54)
    wanted = [step for step in range(110) if limits.wants_validation(TrainingState(step=step))]
    assert wanted == [30, 60, 90, *range(100, 110)]
    assert limits.wants_validation(TrainingState(step=41, seconds=3601))


# (loss, nll, finite, target tokens) of some updates.
UPDATES = [
    (31.7, 20.1, True, 7),
    (1e9, 3.3, True, 11),
    (NAN, NAN, False, 5),
    (0.1, 0.2, True, 13),
    (math.inf, 1.0, False, 5),
    (1 / 3, 1 / 7, True, 17),
]


def result(loss: float, nll: float, finite: bool) -> StepResult:
    def scalar(value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float32)

    return StepResult(scalar(loss), scalar(nll), scalar(1.0 if finite else math.inf))


@pytest.mark.parametrize("cut", range(len(UPDATES) + 1))
def test_sums_go_on_after_a_resume_to_the_last_bit(cut: int) -> None:
    whole, first, second = (MetricSums(CPU, 10) for _ in range(3))
    for step, (loss, nll, finite, targets) in enumerate(UPDATES):
        whole.add(step, result(loss, nll, finite), targets)
        if step == cut:
            second.restore(first.state())
        (first if step < cut else second).add(step, result(loss, nll, finite), targets)
    if cut == len(UPDATES):
        second.restore(first.state())
    assert second.state() == whole.state()
    good = [update for update in UPDATES if update[2]]
    expected = [math.fsum(column) for column in zip(*good, strict=True)]
    sums = whole.read()
    assert sums["loss"] == pytest.approx(expected[0], rel=1e-7)
    assert sums["nll"] == pytest.approx(expected[1], rel=1e-7)
    assert (sums["targets"], sums["skipped"]) == (7 + 11 + 13 + 17, 2)
    assert whole.read() == sums
    whole.clear()
    assert set(whole.read().values()) == {0.0}


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("....", 0),
        ("xx.xx.xx", 0),
        (".xxx", 2),
        ("xxx", 1),
        ("xx.xxxx.", 4),  # noticed later, though it came to an end
        ("xxx..xxx", 1),
    ],
)
def test_too_many_in_a_row(pattern: str, first: int) -> None:
    totals = MetricSums(CPU, max_skipped=3)
    for step, update in enumerate(pattern, 1):
        totals.add(step, result(1.0, 1.0, update == "."), 1)
        if step % 4 == 2:  # the log is read, and the process begun anew
            totals.clear()
    assert totals.too_many_skipped() == first


def test_a_row_is_counted_on_after_a_resume() -> None:
    before, after = MetricSums(CPU, 3), MetricSums(CPU, 3)
    for step in (1, 2):
        before.add(step, result(1.0, 1.0, False), 1)
    after.restore(before.state())
    after.add(3, result(1.0, 1.0, False), 1)
    assert after.too_many_skipped() == 1
