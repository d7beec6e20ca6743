"""Sums over updates: exact across a resume; too many skipped updates in a row."""

import math

import pytest
import torch
from torch import Tensor

from transformer_mt.distributed import World
from transformer_mt.training.metric_sums import MetricSums
from transformer_mt.training.step import StepResult

CPU = World(torch.device("cpu"))
NAN = math.nan

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
def test_sums_are_exact_across_a_resume(cut: int) -> None:
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
        ("xx.xxxx.", 4),  # reported later, although the row has ended
        ("xxx..xxx", 1),
    ],
)
def test_too_many_skipped_updates_in_a_row(pattern: str, first: int) -> None:
    sums = MetricSums(CPU, max_skipped=3)
    for step, update in enumerate(pattern, 1):
        sums.add(step, result(1.0, 1.0, update == "."), 1)
        if step % 4 == 2:  # the interval is logged
            sums.clear()
    assert sums.first_of_too_many_skipped() == first


def test_the_count_of_skipped_updates_continues_after_a_resume() -> None:
    before, after = MetricSums(CPU, 3), MetricSums(CPU, 3)
    for step in (1, 2):
        before.add(step, result(1.0, 1.0, False), 1)
    after.restore(before.state())
    after.add(3, result(1.0, 1.0, False), 1)
    assert after.first_of_too_many_skipped() == 1
