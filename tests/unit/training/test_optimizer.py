"""Learning-rate schedules against their formulas; the loss scale against ``GradScaler``.

Adam is tested in ``test_step.py``.
"""

import math
import random
from itertools import pairwise

import pytest
import torch

from transformer_mt.config import ScheduleConfig
from transformer_mt.training.optimizer import LossScaler, inverse_sqrt, linear, noam


@pytest.mark.parametrize("step", [1, 2, 100, 3999, 4000, 4001, 16000, 100_000])
def test_noam_is_equation_3(step: int) -> None:
    # lrate = d_model^-0.5 · min(step_num^-0.5, step_num · warmup_steps^-1.5)
    expected = (1 / math.sqrt(512)) * min(1 / math.sqrt(step), step / (4000 * math.sqrt(4000)))
    config = ScheduleConfig(name="noam", warmup_steps=4000)
    assert noam(step, config, 512, 100_000) == pytest.approx(expected, rel=1e-12)


def test_inverse_sqrt_has_the_shape_of_noam_with_the_given_peak() -> None:
    config = ScheduleConfig(name="inverse_sqrt", warmup_steps=400, peak_lr=2e-3)

    def rate(step: int) -> float:
        return inverse_sqrt(step, config, 64, 10_000)

    rates = {1: 2e-3 / 400, 200: 1e-3, 400: 2e-3, 1600: 1e-3}  # half of it at four times the step
    assert {step: rate(step) for step in rates} == pytest.approx(rates, rel=1e-12)


@pytest.mark.parametrize(("warmup", "max_steps"), [(1, 2), (3, 10), (100, 101), (10, 1000)])
def test_linear_rises_then_decays_and_ends_above_zero(warmup: int, max_steps: int) -> None:
    config = ScheduleConfig(name="linear", warmup_steps=warmup, peak_lr=1e-3)
    rates = [linear(step, config, 64, max_steps) for step in range(1, max_steps + 1)]
    assert rates[warmup - 1] == max(rates) == pytest.approx(1e-3)
    assert all(rate > 0 for rate in rates)
    up, down = rates[:warmup], rates[warmup - 1 :]
    for part, sign in ((up, 1), (down, -1)):  # straight lines
        steps = [b - a for a, b in pairwise(part)]
        assert steps == pytest.approx(steps[:1] * len(steps))
        assert all(sign * step > 0 for step in steps)
    # The next step would be zero.
    assert rates[-1] == pytest.approx(down[0] - down[1])


def test_scale_follows_gradscaler_also_when_it_is_restored() -> None:
    draw = random.Random(0)
    # Long runs without overflow, so that the scale also grows, and a few overflows in a row.
    overflows = [draw.random() < (0.2 if i % 5000 < 50 else 0) for i in range(6000)]
    theirs = torch.amp.GradScaler("cpu")
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    ours = LossScaler(torch.device("cpu"))
    theirs.scale(torch.zeros(1))
    seen = []
    for number, overflow in enumerate(overflows):
        weight.grad = torch.tensor([float("inf") if overflow else 1.0])
        theirs.step(optimizer)
        theirs.update()
        ours.update(torch.tensor(overflow))
        assert ours.factor.item() == theirs.get_scale()
        seen.append(ours.factor.item())
        if number % 900 == 0:  # in the middle of a row without overflow, too
            ours, saved = LossScaler(torch.device("cpu")), ours.state()
            for name, tensor in ours.state().items():
                tensor.copy_(saved[name])
    assert len(set(seen)) > 5
    assert any(later > earlier for earlier, later in pairwise(seen))
