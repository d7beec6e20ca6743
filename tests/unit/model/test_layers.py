"""Dropout against its definition and distribution."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from transformer_mt.model.layers import Dropout


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


def test_dropout_drops_each_element_with_probability_p() -> None:
    p, n = 0.3, 4 * 250_000
    out = Dropout(p)(torch.ones(n))
    kept = out != 0
    torch.testing.assert_close(out[kept].unique(), torch.tensor([1 / (1 - p)]))

    def near(sample: Tensor, q: float) -> bool:  # five standard deviations of a binomial share
        share = float(sample.float().mean())
        return abs(share - q) < 5 * math.sqrt(q * (1 - q) / sample.numel())

    assert near(~kept, p)
    assert abs(float(out.mean()) - 1) < 5 * math.sqrt(p / (1 - p) / n)
    # Four elements share a 64-bit draw: each has probability p, independent of the others.
    lanes = ~kept.view(-1, 4)
    for i in range(4):
        assert near(lanes[:, i], p)
        assert near(lanes[:, i] & lanes[:, (i + 1) % 4], p * p)
        assert near(lanes[1:, i] & lanes[:-1, i], p * p)


@pytest.mark.parametrize("shape", [(1,), (5, 7), (0, 4)])
def test_dropout_of_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape[::-1], dtype=torch.float64).t()  # not contiguous
    outputs = torch.stack([Dropout(0.5)(x) for _ in range(400)])
    dropped = outputs == 0
    assert torch.equal(outputs, torch.where(dropped, 0.0, 2 * x))
    share = dropped.double().mean(dim=0)  # of 400 draws for each element
    assert ((share - 0.5).abs() < 5 * math.sqrt(0.25 / 400)).all()


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_dropout_is_the_identity_with_p_0_or_in_eval_mode(p: float) -> None:
    x = torch.randn(5, 7)
    dropout = Dropout(p)
    before = torch.get_rng_state()
    assert torch.equal(dropout.train(p == 0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_and_its_gradient_scale_without_bias(dtype: torch.dtype) -> None:
    x = torch.full((1001,), 1.25, dtype=dtype, requires_grad=True)
    out = Dropout(0.3)(x)
    exact = torch.promote_types(dtype, torch.float32)
    assert out.dtype == exact
    assert out.max().item() == pytest.approx(1.25 / 0.7, rel=torch.finfo(exact).eps)
    weight = torch.randn(out.shape, dtype=exact)
    (out * weight).sum().backward()
    torch.testing.assert_close(x.grad, (weight * out / 1.25).to(dtype))
