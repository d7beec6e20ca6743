"""The fused loss and its gradient against ``F.cross_entropy`` on full logits."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.training import loss as loss_module
from transformer_mt.training.loss import smoothed_cross_entropy

N, D, V = 37, 6, 11
Chunks = tuple[int, int, int, list[int]]
"""Rows at a time, multiple of the columns, logits at a time of a softmax, and ignored rows."""


def problem(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, D, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, generator=generator, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(V, (N,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize(
    "chunks",
    [
        (1, 1, 10**6, []),
        (5, 1, 2 * V, [0, 7, 8, 35, 36]),  # remainders
        (N - 1, 8, 1, [3]),  # 11 pieces in 16 columns
        (10 * N, 1, 10**6, [0, 7, 8, 35, 36]),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_loss_and_gradients_equal_cross_entropy(
    smoothing: float, chunks: Chunks, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_at_a_time, multiple, softmax_size, ignored = chunks
    monkeypatch.setitem(loss_module._CHUNK_ROWS, "cpu", rows_at_a_time)
    monkeypatch.setitem(loss_module._VOCAB_MULTIPLE, "cpu", multiple)
    monkeypatch.setattr(loss_module, "_SOFTMAX_SIZE", softmax_size)
    hidden, weight, targets = problem()
    bias = torch.linspace(-1, 2, V, dtype=torch.float64, requires_grad=True)
    targets[ignored] = IGNORE_INDEX
    inputs = (hidden, weight, bias) if with_bias else (hidden, weight)
    loss, nll = smoothed_cross_entropy(hidden, weight, targets, smoothing, *inputs[2:])
    logits = hidden @ weight.T + (bias if with_bias else 0)
    options = {"ignore_index": IGNORE_INDEX, "reduction": "sum"}
    expected = cross_entropy(logits, targets, label_smoothing=smoothing, **options)
    assert loss.dtype == torch.float64
    assert not nll.requires_grad
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, cross_entropy(logits, targets, **options).detach())
    with torch.no_grad():
        again = smoothed_cross_entropy(hidden, weight, targets, smoothing, *inputs[2:])
    torch.testing.assert_close(again, (loss.detach(), nll))
    for factor in (1.0, -0.25):  # of the upstream gradient
        gradients, wanted = (
            torch.autograd.grad(factor * each, inputs, retain_graph=True)
            for each in (loss, expected)
        )
        torch.testing.assert_close(gradients[:2], wanted[:2], rtol=1e-10, atol=1e-10)
        # The constant part of the bias's gradient is computed in single precision.
        torch.testing.assert_close(gradients[2:], wanted[2:], rtol=1e-6, atol=1e-6)


def test_second_derivatives_are_refused() -> None:
    hidden, weight, targets = problem()
    loss, _ = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    (gradient,) = torch.autograd.grad(loss.square(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_gradient_of_a_scaled_loss_is_scaled_before_it_is_rounded_to_fp16() -> None:
    # A third of the pieces have probabilities of about 1e-8, less than the smallest number of fp16,
    # as pieces that are never the target get without smoothing.
    generator = torch.Generator().manual_seed(1)
    hidden, weight = (torch.randn(n, 32, generator=generator) for n in (64, 256))
    weight *= 0.1
    hidden[:, 0], weight[170:, 0] = 1.0, -13.5
    targets = torch.randint(170, (64,), generator=generator)

    def gradient(scale: float, *, fp16: bool, passed: bool) -> Tensor:
        leaf, factor = weight.clone().requires_grad_(), torch.tensor(scale)
        with torch.autocast("cpu", torch.float16, enabled=fp16):
            loss, _ = smoothed_cross_entropy(
                hidden, leaf, targets, 0.0, loss_scale=factor if passed else None
            )
        return torch.autograd.grad(loss * factor, leaf)[0] / scale

    exact = gradient(1.0, fp16=False, passed=False)
    scale = 2.0**16 / len(targets)  # that of the first update, divided by the targets
    torch.testing.assert_close(gradient(scale, fp16=False, passed=True), exact)
    after, before = (
        (gradient(scale, fp16=True, passed=passed) - exact).norm(dim=1) / exact.norm(dim=1)
        for passed in (False, True)
    )
    assert (after > 0.5).sum() > 80  # lost
    assert before.max() < 0.05


@pytest.mark.parametrize("scale", [40, 1e4])
def test_a_target_whose_probability_underflows_keeps_its_loss(scale: float) -> None:
    hidden, weight, _ = problem(torch.float32)
    logits = scale * hidden @ weight.T
    targets = logits.argmin(1)
    assert (logits.softmax(1).gather(1, targets[:, None]) == 0).any()
    loss, nll = smoothed_cross_entropy(scale * hidden, weight, targets, 0.1)
    torch.testing.assert_close(nll, cross_entropy(logits, targets, reduction="sum").detach())
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (hidden, weight)))
