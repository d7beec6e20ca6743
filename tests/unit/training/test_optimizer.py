"""Adam against ``torch.optim.Adam``, the loss scale against ``GradScaler``."""

import random
from itertools import pairwise

import torch
from torch import Tensor

from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.optimizer import LossScaler, adam


def tiny() -> Transformer:
    config = ModelConfig(
        d_model=8, d_ff=16, num_heads=2, d_k=3, d_v=5, num_encoder_layers=1, num_decoder_layers=2,
        norm="pre", positions="learned", max_positions=7,
    )  # fmt: skip
    torch.manual_seed(5)
    return Transformer(config, 11)


def gradients(model: Transformer, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=generator) for n, p in model.named_parameters()}


def test_adam_equals_torch_adam_bit_for_bit() -> None:
    model, reference = tiny(), tiny()
    ours = adam(model, OptimizerConfig())
    theirs = torch.optim.Adam(reference.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    for seed, lr in enumerate([1e-3, 5e-3, 2e-3]):
        for optimizer, trained in ((ours, model), (theirs, reference)):
            for name, gradient in gradients(model, seed).items():
                trained.get_parameter(name).grad = gradient
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
        torch.testing.assert_close(
            dict(model.named_parameters()), dict(reference.named_parameters()), rtol=0, atol=0
        )


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
