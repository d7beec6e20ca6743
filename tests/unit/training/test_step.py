"""One update against ``torch.optim.Adam`` on the mean loss of full logits; sums over updates."""

import math
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
import torch
from support.models import tiny_config
from support.stores import random_store
from torch import Tensor
from torch.nn.functional import cross_entropy

from transformer_mt.config import OptimizerConfig
from transformer_mt.data.batching.micro_batches import micro_batches
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.run_layout import CHECKPOINT_OPTIMIZER
from transformer_mt.training.loss import smoothed_cross_entropy
from transformer_mt.training.step import MetricSums, StepResult, TrainStep

V, SMOOTHING = 23, 0.1
CPU = World(torch.device("cpu"))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tiny(dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> Transformer:
    torch.manual_seed(5)
    return Transformer(tiny_config(dropout=dropout), V).to(dtype)


def stepper(
    model: Transformer, precision: str = "fp32", weight_decay: float = 0.0, **options: float
) -> TrainStep:
    config = OptimizerConfig(weight_decay=weight_decay)
    return TrainStep(model, config, SMOOTHING, precision, CPU, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def batch() -> GlobalBatch:
    store = random_store(25, V)
    order = np.argsort(store.tgt.lengths)
    return GlobalBatch(store, tuple(np.array_split(order, 3)), int(store.tgt.lengths.sum()))


def state(model: Transformer) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_updates_equal_adam_on_the_mean_loss(decay: float) -> None:
    store, rates = random_store(30, V), [1e-3, 5e-3, 2e-3]
    model, reference = tiny(), tiny()
    step = stepper(model, weight_decay=decay)
    plan = BatchPlan(store, batch_tokens=50, seed=1)
    matrices, vectors = (
        [p for p in reference.parameters() if (p.ndim == 2) == wanted] for wanted in (True, False)
    )
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, foreach=False)
    for number, lr in enumerate(rates):
        batch = plan[number]
        parts = micro_batches(batch, 20)
        assert len({len(part.tgt_out) for part in parts}) > 1  # unequal numbers of targets
        result = step(parts, batch.num_targets, lr, seed=number)
        # Reference: full logits, PyTorch's cross-entropy, mean over all target tokens.
        (whole,) = micro_batches(batch, 10**6)
        logits = reference.logits(reference(whole))
        loss = cross_entropy(logits, whole.tgt_out, label_smoothing=SMOOTHING)
        nll = cross_entropy(logits, whole.tgt_out)
        for group in adam.param_groups:
            group["lr"] = lr
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()
        assert result.loss / batch.num_targets == pytest.approx(loss.item(), rel=1e-6)
        assert result.nll / batch.num_targets == pytest.approx(nll.item(), rel=1e-6)
        torch.testing.assert_close(state(model), state(reference), rtol=1e-8, atol=1e-9)
        norm = torch.cat([p.grad.flatten() for p in reference.parameters() if p.grad is not None])
        assert result.grad_norm.item() == pytest.approx(norm.norm().item(), rel=1e-8)


def test_dropout_depends_on_the_seed_only(batch: GlobalBatch) -> None:
    def loss(seed: int, drawn_before: int = 0) -> float:
        model = tiny(dropout=0.5)
        torch.rand(drawn_before)
        parts = micro_batches(batch, 30)
        return stepper(model)(parts, batch.num_targets, 1e-3, seed=seed).loss.item()

    assert loss(7) == loss(7, drawn_before=99)
    assert len({loss(seed) for seed in range(4)}) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_with_a_non_finite_gradient_is_skipped(batch: GlobalBatch, value: float) -> None:
    torch.set_default_dtype(torch.float32)
    parts = micro_batches(batch, 30)

    def trained(bad: int | None) -> tuple[list[Tensor], list[bool]]:
        model = tiny(dtype=torch.float32)
        step = stepper(model)
        finite = []
        for number in range(4 if bad is not None else 3):
            weight = model.encoder[0].feed_forward.linear1.weight
            handle = weight.register_hook(
                lambda grad, n=number: (
                    grad.index_fill(0, torch.tensor(3), value) if n == bad else grad
                )
            )
            result = step(parts, batch.num_targets, 1e-3, seed=0)
            handle.remove()
            finite.append(bool(result.grad_norm.isfinite()))
        return [*state(model), *step.tensors()[CHECKPOINT_OPTIMIZER].values()], finite

    expected, _ = trained(None)
    for bad in (0, 2):
        found, finite = trained(bad)
        assert finite == [number != bad for number in range(4)]
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_clipping_equals_torch_clip_grad_norm(batch: GlobalBatch) -> None:
    parts = micro_batches(batch, 10**6)
    plain, limit = tiny(), 0.05
    norm = stepper(plain)(parts, batch.num_targets, 0.0, seed=0).grad_norm
    assert norm > 2 * limit
    torch.nn.utils.clip_grad_norm_(plain.parameters(), limit)
    for clip_norm in (limit, 10 * norm.item()):
        step = stepper(tiny(), clip_norm=clip_norm)
        assert step(parts, batch.num_targets, 0.0, seed=0).grad_norm == norm
        # After one step exp_avg is a tenth of the gradient.
        for name, parameter in plain.named_parameters():
            assert parameter.grad is not None
            given = step.tensors()[CHECKPOINT_OPTIMIZER][f"{name}.exp_avg"] / 0.1
            expected = parameter.grad if clip_norm == limit else parameter.grad * (norm / limit)
            torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-9)


def test_gradients_in_half_precision_are_close_and_overflows_are_skipped(
    batch: GlobalBatch,
) -> None:
    torch.set_default_dtype(torch.float32)
    parts = micro_batches(batch, 30)
    means, losses = {}, {}
    for precision in ("fp32", "bf16", "fp16"):
        model = tiny(dtype=torch.float32)
        step = stepper(model, precision)
        with patch.object(step._parallel, "_loss", wraps=smoothed_cross_entropy) as loss:
            result = step(parts, batch.num_targets, 0.0, seed=0)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert (result.loss.dtype, result.nll.dtype) == (torch.float32, torch.float32)
        losses[precision] = [result.loss.item(), result.nll.item()]
        assert losses[precision] == pytest.approx(losses["fp32"], rel=5e-3)
        moments = step.tensors()[CHECKPOINT_OPTIMIZER]
        means[precision] = torch.cat(
            [v.flatten() for name, v in moments.items() if name.endswith("exp_avg")]
        )
        expected = 10 * means["fp32"].norm().item()  # not scaled
        assert result.grad_norm.item() == pytest.approx(expected, rel=0.02)
        # The loss knows by what its gradient will be multiplied.
        scale = pytest.approx(2**16 / batch.num_targets) if precision == "fp16" else None
        assert [call.args[-1] for call in loss.call_args_list] == [scale] * len(parts)
    for precision, least, most in (("bf16", 1e-5, 0.05), ("fp16", 1e-6, 0.01)):
        difference = (means["fp32"] - means[precision]).norm() / means["fp32"].norm()
        assert least < difference < most  # rounded, but close

    factor = step.tensors()[CHECKPOINT_OPTIMIZER]["loss_scale.factor"]
    factor.fill_(2.0**24)  # products with it leave fp16's range
    skipped = 0
    while not step(parts, batch.num_targets, 1e-3, seed=0).grad_norm.isfinite():
        skipped += 1
        assert factor == 2.0 ** (24 - skipped)
    assert skipped > 0
    assert all(bool(p.isfinite().all()) for p in model.parameters())


# (loss, nll, finite, target tokens) of some updates.
UPDATES = [
    (31.7, 20.1, True, 7),
    (1e9, 3.3, True, 11),
    (math.nan, math.nan, False, 5),
    (0.1, 0.2, True, 13),
    (math.inf, 1.0, False, 5),
    (1 / 3, 1 / 7, True, 17),
]


def result(loss: float, nll: float, finite: bool) -> StepResult:
    return StepResult(*torch.tensor((loss, nll, 1.0 if finite else math.inf), dtype=torch.float32))


@pytest.mark.parametrize("cut", [0, 3, len(UPDATES)])
def test_sums_are_exact_across_a_resume(cut: int) -> None:
    whole, resumed = MetricSums(CPU, {}), MetricSums(CPU, {})
    for step, (loss, nll, finite, targets) in enumerate(UPDATES):
        if step == cut:
            resumed = MetricSums(CPU, resumed.read())
        for sums in (whole, resumed):
            sums.add(result(loss, nll, finite), targets)
    assert MetricSums(CPU, resumed.read()).read() == whole.read()
    good = [update for update in UPDATES if update[2]]
    expected = [math.fsum(column) for column in zip(*good, strict=True)]
    found = whole.read()
    assert found["loss"] == pytest.approx(expected[0], rel=1e-7)
    assert found["nll"] == pytest.approx(expected[1], rel=1e-7)
    assert (found["targets"], found["skipped"]) == (7 + 11 + 13 + 17, 2)
    assert whole.read() == found
    whole.clear()
    assert set(whole.read().values()) == {0.0}
