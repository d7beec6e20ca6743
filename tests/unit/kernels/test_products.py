"""``Linear`` against ``nn.Linear``, with each layout of a gradient."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt.kernels import hardware, products
from transformer_mt.kernels.products import HAS_ONEDNN, Linear, PackedLinear


def gradients(layer: nn.Linear, x: Tensor, weights: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * weights).sum().backward()
    # Their layout is that of the weight, which the optimizer is fast with.
    assert all(p.grad is not None and p.grad.is_contiguous() for p in layer.parameters())
    found = [y.detach(), x.grad, *(p.grad for p in layer.parameters())]
    return [tensor for tensor in found if tensor is not None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (7, 5, 3), (130, 64, 192), (130, 192, 64)])
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


def test_second_derivatives_are_refused() -> None:
    layer = Linear(2, 2)
    squares = layer(torch.ones(1, 2)).square().sum()
    (gradient,) = torch.autograd.grad(squares, layer.bias, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("transposed", [True, False])
def test_gradients_under_autocast_equal_those_of_torch(
    transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "is_amd_with_avx512", lambda: not transposed)
    torch.manual_seed(0)
    ours, theirs = Linear(6, 4), nn.Linear(6, 4)
    theirs.load_state_dict(ours.state_dict())
    x, weights = torch.randn(9, 6), torch.randn(9, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [gradients(layer, x, weights) for layer in (ours, theirs)]
    for mine, other in zip(*results, strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=1e-2)


def test_weights_may_change_between_forward_passes() -> None:
    layer, x = Linear(6, 4, bias=False), torch.randn(3, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x).sum().backward()
        # The fused optimizer changes a weight without changing its version counter.
        torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True).step()
        torch.testing.assert_close(layer(x), x.bfloat16() @ layer.weight.bfloat16().T)


@pytest.mark.skipif(not HAS_ONEDNN, reason="needs oneDNN")
def test_few_numbers_of_rows_reach_the_kernel_with_packed_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_SMALL", 0)
    linear = torch.nn.Linear(40, 24)
    packed = PackedLinear(linear.weight, linear.bias, torch.float32)
    rows = set()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "_linear_pointwise" in str(function):
                rows.add(len(args[0]))
            return function(*args, **(kwargs or {}))

    with torch.inference_mode(), Recorder():
        for number in range(1, 400):
            x = torch.randn(number, 40)
            torch.testing.assert_close(packed(x), linear(x))
    assert 399 <= max(rows) <= 399 * 1.125
    assert len(rows) < 60
