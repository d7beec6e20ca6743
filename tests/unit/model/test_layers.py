"""Embeddings and positions against §3.4 and §3.5; dropout against its definition."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from transformer_mt.config import ModelConfig
from transformer_mt.model.layers import Dropout, Embedding, sinusoids


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


def test_dropout_drops_each_element_with_probability_p() -> None:
    p, n = 0.3, 4 * 250_000
    out = Dropout(p)(torch.ones(n))
    kept = out != 0
    torch.testing.assert_close(out[kept].unique(), torch.tensor([1 / (1 - p)]))

    def near(sample: Tensor, q: float) -> bool:  # five standard deviations of a binomial share
        share = float(sample.float().mean())
        return abs(share - q) < 5 * math.sqrt(q * (1 - q) / sample.numel())

    assert near(~kept, p)
    assert abs(float(out.mean()) - 1) < 5 * math.sqrt(p / (1 - p) / n)
    # Four elements share a 64-bit draw: each has probability p, independent of the others.
    lanes = ~kept.view(-1, 4)
    for i in range(4):
        assert near(lanes[:, i], p)
        assert near(lanes[:, i] & lanes[:, (i + 1) % 4], p * p)
        assert near(lanes[1:, i] & lanes[:-1, i], p * p)


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_dropout_is_the_identity_with_p_0_or_in_eval_mode(p: float) -> None:
    x = torch.randn(5, 7)
    dropout = Dropout(p)
    before = torch.get_rng_state()
    assert torch.equal(dropout.train(p == 0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_and_its_gradient_scale_without_bias(dtype: torch.dtype) -> None:
    x = torch.full((1001,), 1.25, dtype=dtype, requires_grad=True)
    out = Dropout(0.3)(x)
    exact = torch.promote_types(dtype, torch.float32)
    assert out.dtype == exact
    assert out.max().item() == pytest.approx(1.25 / 0.7, rel=torch.finfo(exact).eps)
    weight = torch.randn(out.shape, dtype=exact)
    (out * weight).sum().backward()
    torch.testing.assert_close(x.grad, (weight * out / 1.25).to(dtype))


def positional_encoding(pos: int, d_model: int) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(pos / 10000^(2i/d))."""
    angles = [pos / 10000 ** (2 * i / d_model) for i in range(d_model // 2)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_match_the_formula_of_the_paper(d_model: int) -> None:
    positions = [0, 1, 2, 9, 100, 1023, 5000]
    expected = torch.tensor([positional_encoding(p, d_model) for p in positions]).double()
    got = sinusoids(5001, d_model)
    assert got.dtype == torch.float32
    # Half a unit in the last place of a float32 below 1.
    torch.testing.assert_close(got[positions].double(), expected, rtol=0, atol=2**-24)


def embed(embedding: Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
    return embedding(tokens, positions, int(positions.max()) + 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sinusoids_extend_beyond_the_initial_table(dtype: torch.dtype) -> None:
    config = ModelConfig(d_model=6, num_heads=1, max_positions=4)
    embedding = Embedding(3, config).to(dtype)
    tokens, positions = torch.zeros(50, dtype=torch.int64), torch.arange(50)
    before = embed(embedding, tokens[:4], positions[:4])
    got = embed(embedding, tokens, positions)
    assert got.dtype == dtype
    assert torch.equal(got[:4], before)
    assert torch.equal(embed(embedding, tokens[:4], positions[:4]), before)
    pe = got.double() - math.sqrt(6) * embedding.weight[0].double()
    expected = torch.tensor([positional_encoding(p, 6) for p in range(50)]).double()
    rounding = max(2**-24, 4 * torch.finfo(dtype).eps)  # the table itself is single precision
    torch.testing.assert_close(pe, expected, rtol=0, atol=rounding)
