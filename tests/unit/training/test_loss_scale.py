"""The loss scaler against ``torch.amp.GradScaler``."""

import random
from itertools import pairwise

import torch

from transformer_mt.training.loss_scale import LossScaler


def test_scale_follows_gradscaler() -> None:
    draw = random.Random(0)
    # Long runs without overflow, so that the scale also grows, and a few overflows in a row.
    overflows = [draw.random() < (0.2 if i % 5000 < 50 else 0) for i in range(10_000)]
    theirs = torch.amp.GradScaler("cpu")
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight])
    ours = LossScaler(torch.device("cpu"))
    theirs.scale(torch.zeros(1))
    seen = []
    for overflow in overflows:
        weight.grad = torch.tensor([float("inf") if overflow else 1.0])
        theirs.step(optimizer)
        theirs.update()
        ours.update(torch.tensor(overflow))
        assert ours.factor.item() == theirs.get_scale()
        seen.append(ours.factor.item())
    assert len(set(seen)) > 5
    assert any(later > earlier for earlier, later in pairwise(seen))


def test_restoring_the_state_resumes_exactly() -> None:
    one, two = (LossScaler(torch.device("cpu")) for _ in range(2))
    for _ in range(1500):
        one.update(torch.tensor(False))
    one.update(torch.tensor(True))
    for _ in range(1990):
        one.update(torch.tensor(False))
    for name, tensor in two.state().items():
        tensor.copy_(one.state()[name])
    for _ in range(20):
        one.update(torch.tensor(False))
        two.update(torch.tensor(False))
    assert one.factor.item() == two.factor.item() == 2.0**16
