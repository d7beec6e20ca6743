"""``Linear`` against ``nn.Linear``, with and without oneDNN."""

import pytest
import torch
from torch import Tensor, nn

from transformer_mt.model import linear
from transformer_mt.model.linear import Linear, product


def gradients(layer: nn.Linear, x: Tensor, weights: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * weights).sum().backward()
    found = [y.detach(), x.grad, *(p.grad for p in layer.parameters())]
    return [tensor for tensor in found if tensor is not None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (7, 5, 3), (130, 64, 192)])
def test_values_and_gradients_equal_torch_in_float64(n: int, k: int, m: int, bias: bool) -> None:
    torch.manual_seed(0)
    ours, exact = Linear(k, m, bias=bias), nn.Linear(k, m, bias=bias).double()
    exact.load_state_dict(ours.state_dict())
    wide, weights = torch.randn(n, 2 * k), torch.randn(n, m)
    x = wide[:, :k]  # non-contiguous rows
    got = gradients(ours, x, weights)
    wanted = gradients(exact, x.double(), weights.double())
    assert len(got) == len(wanted) == (4 if bias else 3)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not linear._AVAILABLE, reason="this PyTorch has no oneDNN")
def test_only_fp32_training_uses_onednn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []

    def spy(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        taken.append(x.dtype)
        return product(x, weight, bias)

    monkeypatch.setattr(linear, "product", spy)
    layer = Linear(4, 4)
    layer(torch.randn(3, 4))
    assert taken == [torch.float32]
    with torch.inference_mode():
        layer(torch.randn(3, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.randn(3, 4)).dtype == torch.bfloat16
    layer.double()(torch.randn(3, 4, dtype=torch.float64))
    assert len(taken) == 1


def test_products_are_the_same_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(9, 6), torch.randn(4, 6), torch.randn(4)
    here = product(x, w, b)
    monkeypatch.setattr(linear, "_AVAILABLE", False)
    torch.testing.assert_close(product(x, w, b), here)
    torch.testing.assert_close(product(x, w.clone().T.contiguous().T), x @ w.T)
