"""One update against Adam by hand on the mean loss of whole logits."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching import Batch, BatchPlan, GlobalBatch, micro_batches
from transformer_mt.data.store import Side, TokenStore
from transformer_mt.distributed import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.train.step import TrainStep

V, SMOOTHING = 23, 0.1
CPU = World(torch.device("cpu"))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pairs(count: int, seed: int = 0) -> TokenStore:
    rng = np.random.default_rng(seed)

    def side() -> Side:
        lengths = rng.integers(1, 9, count)
        return Side.from_lists([[*rng.integers(4, V, n - 1).tolist(), 3] for n in lengths])

    return TokenStore(side(), side())


def tiny(dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> Transformer:
    config = ModelConfig(
        d_model=8,
        d_ff=16,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=1,
        dropout=dropout,
    )
    torch.manual_seed(5)
    return Transformer(config, V).to(dtype)


def stepper(model: Transformer, smoothing: float = SMOOTHING, precision: str = "fp32") -> TrainStep:
    return TrainStep(model, OptimizerConfig(), smoothing, precision, CPU)


def everything(store: TokenStore) -> GlobalBatch:
    order = np.argsort(store.tgt.lengths)
    return GlobalBatch(tuple(np.array_split(order, 3)), int(store.tgt.lengths.sum()))


def state(model: Transformer) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_three_updates_are_adam_on_the_mean_loss() -> None:
    store, rates = pairs(30), [1e-3, 5e-3, 2e-3]
    model, reference = tiny(), tiny()
    step = stepper(model)
    plan = BatchPlan(store, batch_tokens=50, seed=1)
    adam = torch.optim.Adam(reference.parameters(), betas=(0.9, 0.98), eps=1e-9, foreach=False)
    for number, lr in enumerate(rates):
        batch = plan[number]
        result = step(micro_batches(store, batch, 20), batch.num_targets, lr, seed=number)
        # By hand: whole logits, PyTorch's cross-entropy, its mean over all target tokens.
        (whole,) = micro_batches(store, batch, 10**6)
        logits = reference.logits(reference(whole))
        loss = cross_entropy(logits, whole.tgt_out, label_smoothing=SMOOTHING)
        nll = cross_entropy(logits, whole.tgt_out)
        adam.param_groups[0]["lr"] = lr
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()
        assert result.loss / batch.num_targets == pytest.approx(loss.item(), rel=1e-6)
        assert result.nll / batch.num_targets == pytest.approx(nll.item(), rel=1e-6)
        torch.testing.assert_close(state(model), state(reference), rtol=1e-8, atol=1e-9)
        norm = torch.cat([p.grad.flatten() for p in reference.parameters() if p.grad is not None])
        assert step.grad_norm().item() == pytest.approx(norm.norm().item(), rel=1e-8)


def test_the_first_update_moves_every_weight_by_the_learning_rate() -> None:
    # Adam's first step is lr · g / (|g| + ε'): its size does not depend on the gradient.
    store = pairs(30)
    model = tiny()
    before = state(model)
    batch = everything(store)
    stepper(model)(micro_batches(store, batch, 10**6), batch.num_targets, 1e-3, seed=0)
    moved = torch.cat([(a - b).flatten() for a, b in zip(state(model), before, strict=True)])
    assert moved.abs().max() == pytest.approx(1e-3, rel=1e-3)
    assert (moved.abs() > 0.99e-3).double().mean() > 0.9


def accumulated(store: TokenStore, parts: Sequence[Batch], num_targets: int) -> list[Tensor]:
    model = tiny()
    stepper(model)(parts, num_targets, 1e-3, seed=0)
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("max_tokens", [9, 17, 40])
def test_accumulation_does_not_change_the_gradient(max_tokens: int) -> None:
    store = pairs(25)
    batch = everything(store)
    parts = micro_batches(store, batch, max_tokens)
    counts = [len(part.tgt_out) for part in parts]
    assert len(parts) > 2
    assert len(set(counts)) > 1  # parts with unequal numbers of targets
    whole = accumulated(store, micro_batches(store, batch, 10**6), batch.num_targets)
    torch.testing.assert_close(
        accumulated(store, parts, batch.num_targets), whole, rtol=1e-10, atol=1e-12
    )


def test_a_stand_in_counts_for_nothing() -> None:
    store = pairs(25)
    batch = everything(store)
    (whole,) = micro_batches(store, batch, 10**6)
    (stand_in,) = micro_batches(store, batch, 10**6, rank=1000, world_size=1001)
    assert stand_in.weight == 0.0
    alone = accumulated(store, [whole], batch.num_targets)
    with_it = accumulated(store, [whole, stand_in], batch.num_targets)
    torch.testing.assert_close(with_it, alone, rtol=0, atol=0)
    result = stepper(tiny())([stand_in], batch.num_targets, 1e-3, seed=0)
    assert (result.loss.item(), result.nll.item()) == (0, 0)


def test_gradients_of_the_update_before_are_gone() -> None:
    store = pairs(25)
    batch = everything(store)
    parts = micro_batches(store, batch, 30)
    model = tiny()
    step = stepper(model)
    step(parts, batch.num_targets, 0.0, seed=0)
    once = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    step(parts, batch.num_targets, 0.0, seed=0)  # the weights did not move
    torch.testing.assert_close(
        [p.grad for p in model.parameters() if p.grad is not None], once, rtol=0, atol=0
    )


def test_the_seed_alone_decides_about_dropout() -> None:
    store = pairs(25)
    batch = everything(store)

    def loss(seed: int, drawn_before: int = 0) -> float:
        model = tiny(dropout=0.5)
        torch.rand(drawn_before)
        parts = micro_batches(store, batch, 30)
        return stepper(model)(parts, batch.num_targets, 1e-3, seed=seed).loss.item()

    assert loss(7) == loss(7, drawn_before=99)
    assert len({loss(seed) for seed in range(4)}) == 4


def test_bf16_is_close_and_keeps_the_weights_in_fp32() -> None:
    torch.set_default_dtype(torch.float32)
    store = pairs(25)
    batch = everything(store)
    parts = micro_batches(store, batch, 30)
    gradients = {}
    for precision in ("fp32", "bf16"):
        model = tiny(dtype=torch.float32)
        result = stepper(model, precision=precision)(parts, batch.num_targets, 1e-3, seed=0)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert result.loss.dtype == torch.float32
        grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients[precision] = torch.cat(grads)
    difference = (gradients["fp32"] - gradients["bf16"]).norm() / gradients["fp32"].norm()
    assert 1e-5 < difference < 0.05  # rounded, but the same
