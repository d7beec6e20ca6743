"""The loss scale against ``GradScaler``; Adam is tested in ``test_step.py``."""

import random
from itertools import pairwise

import torch

from transformer_mt.training.optimizer import LossScaler


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
