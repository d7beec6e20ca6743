"""Adam against its formula, the loss scale against ``GradScaler``."""

import random
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import LossScaler, adam, named_state

V, D, H, K, K_V, LAYERS = 11, 8, 2, 3, 5, 2  # queries, keys and values have different shapes
ADAM = OptimizerConfig()
RATES = [1e-3, 5e-3, 2e-3]


def tiny() -> Transformer:
    config = ModelConfig(
        d_model=D,
        d_ff=16,
        num_heads=H,
        d_k=K,
        d_v=K_V,
        num_encoder_layers=1,
        num_decoder_layers=LAYERS,
        norm="pre",
        positions="learned",
        max_positions=7,
    )
    torch.manual_seed(5)
    return Transformer(config, V)


def gradients(model: Transformer, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=generator) for n, p in model.named_parameters()}


def step(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()


def train(model: Transformer, config: OptimizerConfig) -> Iterator[dict[str, Tensor]]:
    """The weights initially and after each step."""
    optimizer = adam(model, config)
    yield {name: p.detach().clone() for name, p in model.named_parameters()}
    for seed, lr in enumerate(RATES):
        optimizer.zero_grad()
        for name, gradient in gradients(model, seed).items():
            model.get_parameter(name).grad = gradient
        step(optimizer, lr)
        yield {name: p.detach().clone() for name, p in model.named_parameters()}


def adam_by_hand(start: Tensor, grads: list[Tensor]) -> list[Tensor]:
    """Kingma and Ba's algorithm 1, in float64."""
    theta, m, v = start.double(), torch.zeros(()), torch.zeros(())
    path = [theta]
    for t, (gradient, lr) in enumerate(zip(grads, RATES, strict=True), 1):
        g = gradient.double()
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        theta = theta - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-9)
        path.append(theta)
    return path


def test_adam_follows_its_formula() -> None:
    model = tiny()
    states = list(train(model, ADAM))
    for name in states[0]:
        grads = [gradients(model, seed)[name] for seed in range(len(RATES))]
        for got, expected in zip(
            (state[name] for state in states), adam_by_hand(states[0][name], grads), strict=True
        ):
            torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=1e-7)


def test_adam_equals_torch_adam_bit_for_bit() -> None:
    model, reference = tiny(), tiny()
    adam = torch.optim.Adam(reference.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    for seed, state in enumerate(list(train(model, ADAM))[1:]):
        adam.param_groups[0]["lr"] = RATES[seed]
        for name, gradient in gradients(model, seed).items():
            reference.get_parameter(name).grad = gradient
        adam.step()
        torch.testing.assert_close(dict(reference.named_parameters()), state, rtol=0, atol=0)


def test_restoring_the_state_resumes_exactly() -> None:
    model, other = tiny(), tiny()
    optimizer, fresh = adam(model, ADAM), adam(other, ADAM)
    saved, restored = named_state(model, optimizer), named_state(other, fresh)
    assert all(not value.any() for value in restored.values())
    for seed in range(4):
        if seed == 2:
            other.load_state_dict(model.state_dict())
            for name, value in restored.items():
                value.copy_(saved[name])
        for each, trained in ((optimizer, model), (fresh, other)):
            if each is optimizer or seed >= 2:
                for name, gradient in gradients(model, seed).items():
                    trained.get_parameter(name).grad = gradient
                step(each, 1e-2)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    saved, restored = named_state(model, optimizer), named_state(other, fresh)
    torch.testing.assert_close(restored, saved, rtol=0, atol=0)
    assert restored.keys() == saved.keys()


def test_weights_without_gradient_do_not_change() -> None:
    model = tiny()
    optimizer = adam(model, ADAM)
    for name, gradient in gradients(model, 1).items():
        model.get_parameter(name).grad = gradient
    step(optimizer, 1.0)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step(optimizer, 1.0)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before, rtol=0, atol=0)


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


def test_restoring_the_loss_scale_resumes_exactly() -> None:
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
