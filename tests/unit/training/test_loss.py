"""The fused loss against ``F.cross_entropy`` on full logits, and its gradient numerically."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transformer_mt.batch import IGNORE_INDEX
from transformer_mt.training import loss as loss_module
from transformer_mt.training.loss import smoothed_cross_entropy

N, D, V = 37, 6, 11


def problem(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(N, D, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, generator=generator, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(V, (N,), generator=generator)


def by_pytorch(smoothing: float) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    hidden, weight, targets = problem()
    logits = hidden @ weight.T
    loss = cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    nll = cross_entropy(logits, targets, reduction="sum")
    return loss, nll, torch.autograd.grad(loss, (hidden, weight))


# Chunks of one row, of several rows with a remainder, of all rows.
@pytest.mark.parametrize("rows_at_a_time", [1, 5, N - 1, N, 10 * N])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_loss_and_gradients_equal_cross_entropy(
    smoothing: float, rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loss_module._CHUNK_ROWS, "cpu", rows_at_a_time)
    hidden, weight, targets = problem()
    loss, nll = smoothed_cross_entropy(hidden, weight, targets, smoothing)
    gradients = torch.autograd.grad(loss, (hidden, weight))
    expected_loss, expected_nll, expected = by_pytorch(smoothing)
    assert loss.dtype == torch.float64
    torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, expected_nll, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows_at_a_time", [5, N])
def test_ignored_targets_do_not_contribute(
    rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loss_module._CHUNK_ROWS, "cpu", rows_at_a_time)
    hidden, weight, targets = problem()
    targets[[0, 7, 8, 35, 36]] = IGNORE_INDEX
    loss, nll = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    gradients = torch.autograd.grad(loss, (hidden, weight))
    logits = hidden @ weight.T
    kwargs = {"ignore_index": IGNORE_INDEX, "reduction": "sum"}
    expected = cross_entropy(logits, targets, label_smoothing=0.1, **kwargs)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, cross_entropy(logits, targets, **kwargs).detach())
    wanted = torch.autograd.grad(expected, (hidden, weight))
    torch.testing.assert_close(gradients, wanted, rtol=1e-10, atol=1e-10)
    assert not gradients[0][[0, 7, 8, 35, 36]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_of_a_softmax_do_not_change_the_bits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight, targets = problem(torch.float32)

    def results(size: int) -> list[Tensor]:
        monkeypatch.setattr(loss_module, "_SOFTMAX_SIZE", size)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss, nll = smoothed_cross_entropy(hidden, weight, targets, 0.1)
        return [loss.detach(), nll, *torch.autograd.grad(loss, (hidden, weight))]

    whole = results(2**20)
    for size in (1, 3 * len(weight)):  # parts of one row, and of three
        assert all(map(torch.equal, results(size), whole))


def test_padding_the_vocabulary_does_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loss_module._VOCAB_MULTIPLE, "cpu", 8)  # 11 pieces in 16 columns
    hidden, weight, targets = problem()
    loss, nll = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    gradients = torch.autograd.grad(loss, (hidden, weight))
    expected_loss, expected_nll, expected = by_pytorch(0.1)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, expected_nll, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-10)


def test_gradient_equals_finite_differences() -> None:
    hidden, weight, targets = problem()

    def loss(hidden: Tensor, weight: Tensor) -> Tensor:
        return smoothed_cross_entropy(hidden, weight, targets, 0.1)[0]

    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_gradient_scales_with_the_upstream_gradient() -> None:
    hidden, weight, targets = problem()
    loss, _ = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    scaled = torch.autograd.grad(-0.25 * loss, (hidden, weight))
    for gradient, whole in zip(scaled, by_pytorch(0.1)[2], strict=True):
        torch.testing.assert_close(gradient, -0.25 * whole, rtol=1e-10, atol=1e-10)


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
                hidden, leaf, targets, 0.0, grad_scale=factor if passed else None
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


def test_nll_has_no_gradient() -> None:
    _, nll = smoothed_cross_entropy(*problem(), 0.1)
    assert not nll.requires_grad


def test_loss_is_the_same_under_no_grad() -> None:
    hidden, weight, targets = problem()
    with_gradient = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    with torch.no_grad():
        without = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    assert not without[0].requires_grad
    torch.testing.assert_close(without, tuple(part.detach() for part in with_gradient))


def test_large_logits_do_not_overflow() -> None:
    hidden, weight, targets = problem(torch.float32)
    loss, nll = smoothed_cross_entropy(hidden * 1e4, weight, targets, 0.1)
    assert loss.isfinite()
    assert nll.isfinite()
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (hidden, weight)))


def test_a_target_whose_probability_underflows_keeps_its_loss() -> None:
    hidden, weight, _ = problem(torch.float32)
    logits = 40 * hidden @ weight.T
    targets = logits.argmin(1)
    assert (logits.softmax(1).gather(1, targets[:, None]) == 0).any()
    _, nll = smoothed_cross_entropy(40 * hidden, weight, targets, 0.1)
    torch.testing.assert_close(nll, cross_entropy(logits, targets, reduction="sum").detach())


def test_autocast_rounds_only_the_products() -> None:
    hidden, weight, targets = problem(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    gradients = torch.autograd.grad(loss, (hidden, weight))
    assert (loss.dtype, nll.dtype) == (torch.float32, torch.float32)
    # Reference: the same rounding of the operands, then float64.
    rounded = [t.detach().bfloat16().double().requires_grad_() for t in (hidden, weight)]
    exact = cross_entropy(rounded[0] @ rounded[1].T, targets, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss.double(), exact, rtol=5e-3, atol=0)
    for gradient, wanted in zip(gradients, torch.autograd.grad(exact, rounded), strict=True):
        assert gradient.dtype == torch.float32
        error = (gradient.double() - wanted).norm() / wanted.norm()
        assert error < 0.02  # bfloat16 keeps 8 bits
