"""Embeddings and positional encodings against the formulas of §3.4 and §3.5."""

import math

import pytest
import torch
from torch import Tensor

from transformer_mt.config import ModelConfig
from transformer_mt.model.embedding import Embedding, sinusoids


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


@pytest.mark.parametrize("d_model", [64, 256])
def test_scaled_embeddings_have_zero_mean_and_unit_variance_at_initialization(d_model: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        embedding = Embedding(1000, ModelConfig(d_model=d_model))
    tokens = torch.arange(1000)
    with torch.no_grad():
        scaled = embed(embedding, tokens, tokens) - sinusoids(1000, d_model)
    n = scaled.numel()  # five standard errors of a normal sample's mean and variance
    assert abs(float(scaled.mean())) < 5 / math.sqrt(n)
    assert abs(float(scaled.var()) - 1) < 5 * math.sqrt(2 / n)


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
