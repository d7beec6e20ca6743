"""``Linear`` against ``nn.Linear``, with every kernel."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from transformer_mt.kernels.products import (
    FORWARD,
    HAS_ONEDNN,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Linear,
    ProductKernels,
    converted_weights,
)

KERNELS = [ProductKernels(*names) for names in product(FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)]


def _has_onednn_bf16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def gradients(layer: nn.Linear, x: Tensor, weights: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * weights).sum().backward()
    # Their layout is that of the weight, which the optimizer is fast with.
    assert all(p.grad is not None and p.grad.is_contiguous() for p in layer.parameters())
    found = [y.detach(), x.grad, *(p.grad for p in layer.parameters())]
    return [tensor for tensor in found if tensor is not None]


@pytest.mark.skipif(not HAS_ONEDNN, reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize("kernels", KERNELS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (7, 5, 3), (130, 64, 192)])
def test_values_and_gradients_equal_torch_in_float64(
    n: int, k: int, m: int, bias: bool, kernels: ProductKernels
) -> None:
    torch.manual_seed(0)
    ours, exact = Linear(k, m, bias=bias), nn.Linear(k, m, bias=bias).double()
    exact.load_state_dict(ours.state_dict())
    ours.kernels = kernels
    wide, weights = torch.randn(n, 2 * k), torch.randn(n, m)
    x = wide[:, :k]  # non-contiguous rows
    got = gradients(ours, x, weights)
    wanted = gradients(exact, x.double(), weights.double())
    assert len(got) == len(wanted) == (4 if bias else 3)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WEIGHT_GRADIENT)
def test_gradients_under_autocast_equal_those_of_torch(name: str) -> None:
    if name.startswith("onednn") and not (HAS_ONEDNN and _has_onednn_bf16()):
        pytest.skip("oneDNN has no bf16 products for this processor")
    torch.manual_seed(0)
    ours, theirs = Linear(6, 4), nn.Linear(6, 4)
    theirs.load_state_dict(ours.state_dict())
    ours.kernels = ProductKernels(weight_gradient=name)
    x, weights = torch.randn(9, 6), torch.randn(9, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [gradients(layer, x, weights) for layer in (ours, theirs)]
    for mine, other in zip(*results, strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=1e-2)


def test_weights_are_converted_once_for_all_forward_passes() -> None:
    layer, x = Linear(6, 4, bias=False), torch.randn(3, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with converted_weights(nn.Sequential(layer), torch.bfloat16):
            assert layer.converted is not None
            used = layer.converted.data_ptr()
            y = layer(x)
            torch.testing.assert_close(y, x.bfloat16() @ layer.weight.bfloat16().T)
            y.sum().backward()
            assert layer.converted.data_ptr() == used
            assert layer.weight.grad is not None
        # The fused optimizer changes a weight without changing its version counter.
        torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True).step()
        torch.testing.assert_close(layer(x), x.bfloat16() @ layer.weight.bfloat16().T)
