"""Adam against its formula, and Muon on stacked matrices against torch's Muon on each matrix."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import OPTIMIZERS
from transformer_mt.training.optimizer import make_optimizer

V, D, H, K, K_V, LAYERS = 11, 8, 2, 3, 5, 2  # queries, keys and values have different shapes
ADAM = OptimizerConfig()
MUON = OptimizerConfig(name="muon", momentum=0.9)
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


def train(model: Transformer, config: OptimizerConfig) -> Iterator[dict[str, Tensor]]:
    """The weights initially and after each step."""
    optimizer = make_optimizer(model, config)
    yield {name: p.detach().clone() for name, p in model.named_parameters()}
    for seed, lr in enumerate(RATES):
        optimizer.set_lr(lr)
        optimizer.zero_grad()
        for name, gradient in gradients(model, seed).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()
        yield {name: p.detach().clone() for name, p in model.named_parameters()}


def test_config_accepts_the_registered_optimizers_only() -> None:
    with pytest.raises(InputError) as error:
        OptimizerConfig(name="?")
    (choices,) = re.findall("not one of: (.*)", str(error.value))
    assert choices.split(", ") == list(OPTIMIZERS)


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


def muon_alone(start: Tensor, grads: list[Tensor]) -> list[Tensor]:
    """PyTorch's Muon on a single matrix."""
    matrix = torch.nn.Parameter(start.clone())
    muon = torch.optim.Muon(
        [matrix], lr=0.0, weight_decay=0.0, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    path = [start]
    for gradient, lr in zip(grads, RATES, strict=True):
        muon.param_groups[0]["lr"] = lr
        matrix.grad = gradient.clone()
        muon.step()
        path.append(matrix.detach().clone())
    return path


def is_hidden_matrix(name: str) -> bool:
    return re.search(r"proj|linear", name) is not None and name.endswith("weight")


def rows_of_each_matrix(name: str) -> list[int]:
    """Number of rows of each matrix stacked in a weight (§3.2)."""
    if "qkv_proj" in name:
        return [H * K, H * K, H * K_V]
    if "source_projection" in name:
        return [H * K, H * K_V] * LAYERS
    if "q_proj" in name:
        return [H * K]
    return [16 if "linear1" in name else D]


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


def test_muon_updates_each_stacked_matrix_separately_and_adam_the_rest() -> None:
    model = tiny()
    states = list(train(model, MUON))
    shapes = []
    for name, start in states[0].items():
        grads = [gradients(model, seed)[name] for seed in range(len(RATES))]
        path = torch.stack([state[name] for state in states])
        if not is_hidden_matrix(name):
            expected = torch.stack(adam_by_hand(start, grads))
            torch.testing.assert_close(path.double(), expected, rtol=1e-6, atol=1e-7)
            continue
        ends = [0, *torch.tensor(rows_of_each_matrix(name)).cumsum(0).tolist()]
        assert ends[-1] == len(start), name
        for a, b in pairwise(ends):
            alone = muon_alone(start[a:b], [gradient[a:b] for gradient in grads])
            torch.testing.assert_close(path[:, a:b], torch.stack(alone), rtol=0, atol=0)
            shapes.append(tuple(start[a:b].shape))
    # §3: W^Q, W^K, W^V and W^O of 1 + 2 + 2 attentions, W₁ and W₂ of 3 layers.
    assert sorted(shapes) == sorted(
        5 * [(H * K, D), (H * K, D), (H * K_V, D), (D, H * K_V)] + 3 * [(16, D), (D, 16)]
    )


def test_muon_takes_matrices_and_adam_embeddings_biases_and_norms() -> None:
    model = tiny()
    names = make_optimizer(model, MUON).state()
    muons = {n.removesuffix(".momentum_buffer") for n in names if n.endswith(".momentum_buffer")}
    adams = {n.removesuffix(".exp_avg") for n in names if n.endswith(".exp_avg")}
    assert muons | adams == {name for name, _ in model.named_parameters()}
    assert not muons & adams
    assert {"embedding.weight", "embedding.positions"} <= adams
    others = adams - {"embedding.weight", "embedding.positions"}
    assert all(name.endswith("bias") or "norm" in name for name in others)
    assert all(model.get_parameter(name).ndim == 2 for name in muons)


def test_muon_updates_are_nearly_orthogonal_and_of_the_size_of_adams() -> None:
    # Gradients of queries and values can differ in scale by orders of magnitude.
    model = tiny()
    optimizer = make_optimizer(model, MUON)
    weight = model.get_parameter("encoder.0.self_attention.qkv_proj.weight")
    before = weight.detach().clone()
    weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    weight.grad[: H * K] *= 1e-4
    optimizer.set_lr(1.0)
    optimizer.step()
    update = before - weight.detach()
    for part in update.split([H * K, H * K, H * K_V]):
        singular = torch.linalg.svdvals(part) / (0.2 * max(part.shape) ** 0.5)
        assert singular.min() > 0.5  # as near to 1 as the Newton–Schulz iteration gets
        assert singular.max() < 1.5
        assert 0.1 < part.pow(2).mean().sqrt() < 0.3  # Liu et al. 2025: AdamW's is 0.2 to 0.4


@pytest.mark.parametrize("config", [ADAM, MUON], ids=["adam", "muon"])
def test_restoring_the_state_resumes_exactly(config: OptimizerConfig) -> None:
    model, other = tiny(), tiny()
    optimizer, fresh = make_optimizer(model, config), make_optimizer(other, config)
    assert all(not value.any() for value in fresh.state().values())
    for seed in range(4):
        if seed == 2:
            other.load_state_dict(model.state_dict())
            for name, value in fresh.state().items():
                value.copy_(optimizer.state()[name])
        for each, trained in ((optimizer, model), (fresh, other)):
            if each is optimizer or seed >= 2:
                each.set_lr(1e-2)
                for name, gradient in gradients(model, seed).items():
                    trained.get_parameter(name).grad = gradient
                each.step()
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(fresh.state(), optimizer.state(), rtol=0, atol=0)
    assert fresh.state().keys() == optimizer.state().keys()


@pytest.mark.parametrize("config", [ADAM, MUON], ids=["adam", "muon"])
def test_weights_without_gradient_do_not_change(config: OptimizerConfig) -> None:
    model = tiny()
    optimizer = make_optimizer(model, config)
    optimizer.set_lr(1.0)
    for name, gradient in gradients(model, 1).items():
        model.get_parameter(name).grad = gradient
    optimizer.step()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.step()
    torch.testing.assert_close([p.detach() for p in model.parameters()], before, rtol=0, atol=0)
