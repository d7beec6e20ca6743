"""The model against PyTorch's Transformer layers and against the paper's equations in NumPy."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from paper import Paper
from support.models import random_transformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from twin import Twin, by_layer, counterpart, padded, sequences

from transformer_mt.batch import Batch, Buckets, Packed
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.distributed.world import World
from transformer_mt.kernels import dropout, packed_attention
from transformer_mt.kernels.dropout import kept
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import TrainStep

VOCABULARY = 13


def batch(src: list[list[int]], tgt: list[list[int]]) -> Batch:
    """Random tokens; ``src`` and ``tgt`` give the lengths of the sequences of each group."""
    rng = np.random.default_rng(2)

    def side(groups: list[list[int]]) -> Packed:
        lengths = np.array([n for group in groups for n in group])
        tokens = rng.integers(VOCABULARY, size=lengths.sum())
        shapes = [(len(group), max(group)) for group in groups]
        sizes = [n for n, _ in shapes]
        buckets = Buckets.from_lengths(lengths, sizes, shapes, len(tokens))
        return Packed.from_flat(tokens, lengths, buckets, len(tokens))

    return Batch(side(src), target := side(tgt), target.tokens)


SHAPES = {
    "one_pair": ([[5]], [[4]]),
    "equal_lengths": ([[4, 4, 4]], [[3, 3, 3]]),
    "padding": ([[3, 6, 1]], [[5, 2, 4]]),
    "padding_on_one_side": ([[4, 2], [3, 3]], [[3, 3], [1, 5]]),
    "several_groups": ([[2, 3], [5, 5, 5], [7], [1, 1]], [[6, 1], [3, 3, 3], [2], [4, 5]]),
}


OPTIONS: list[dict[str, Any]] = [
    {"attention_bias": True},
    {"output_bias": True},
    {"activation": "swish"},
    {"activation": "gelu"},
    {"layer_norm_eps": 0.1},
    {"tied_embeddings": "decoder"},
    {"tied_embeddings": "none"},
    {"scale_embeddings": False},
    # As in MarianMT.
    {"attention_bias": True, "output_bias": True, "activation": "swish", "layer_norm_eps": 1e-5},
]
CASES = [*product(SHAPES, [{}, {"positions": "learned"}]), *product(["several_groups"], OPTIONS)]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("shape", "options"), CASES)
def test_outputs_and_gradients_equal_pytorch(
    shape: str, options: dict[str, Any], norm: str
) -> None:
    model = random_model(norm=norm, **options)
    assert_equal(model, Twin(model), batch(*SHAPES[shape]))


def random_model(**options: Any) -> Transformer:
    config = ModelConfig(
        d_model=12, d_ff=20, num_heads=3, num_encoder_layers=2, num_decoder_layers=3,
        max_positions=8, **{"dropout": 0.0, **options},
    )  # fmt: skip
    return random_transformer(config, VOCABULARY)


def assert_equal(model: Transformer, twin: Twin, pairs: Batch) -> None:
    """Outputs of both stacks, and gradients of all parameters."""
    memory = model.encode(pairs.src)
    logits = model.logits(model.decode(pairs.tgt_in, memory, pairs.src))
    expected = twin(sequences(pairs.src), sequences(pairs.tgt_in))
    generator = torch.Generator().manual_seed(3)
    for ours, theirs in zip((memory, logits), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
        weights = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
        for outputs in (ours, theirs):  # a random linear functional of each; gradients add up
            (outputs * weights).sum().backward(retain_graph=True)
    for name, _, ours in by_layer(model):  # type: ignore[assignment]
        theirs_name, rows = counterpart(name, model.config.d_model)
        gradient = twin.get_parameter(theirs_name).grad
        assert ours is not None
        assert gradient is not None
        torch.testing.assert_close(ours, gradient[rows], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("shape", ["equal_lengths", "padding"])
def test_dropout_and_its_gradients_equal_pytorch_with_the_same_masks(
    shape: str, norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    residual, attention, activation = 0.2, 0.4, 0.3
    rates = {"attention_dropout": attention, "activation_dropout": activation}
    model, pairs = random_model(norm=norm, dropout=residual, **rates), batch(*SHAPES[shape])
    masks: list[Tensor] = []

    def recorded(shape: torch.Size, p: float) -> Tensor:
        masks.append(kept(shape, p))
        return masks[-1]

    monkeypatch.setattr(packed_attention, "kept", recorded)
    monkeypatch.setattr(dropout, "kept", recorded)
    twin = Twin(model)
    sides = [padded(sequences(packed))[1] for packed in (pairs.src, pairs.tgt_in)]

    def masked_attention(
        q: Tensor, k: Tensor, v: Tensor, mask: Tensor, p: float, causal: bool
    ) -> Tensor:
        given = masks.pop(0).view(*q.shape[:3], k.shape[2])
        math_attention = torch.ops.aten._scaled_dot_product_attention_math
        return math_attention(q, k, v, mask, p, causal, given)[0]

    class Masked(nn.Module):
        """Dropout of the tokens of one side, padding excepted."""

        def __init__(self, real: Tensor, p: float):
            super().__init__()
            self.real, self.p = real, p

        def forward(self, x: Tensor) -> Tensor:
            given = torch.zeros(x.shape, dtype=torch.bool)
            given[self.real] = masks.pop(0)
            return x * given / (1 - self.p)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", masked_attention)
    twin.source_dropout, twin.target_dropout = (Masked(real, residual) for real in sides)
    for layers, real in zip((twin.encoder.layers, twin.decoder.layers), sides, strict=True):
        for layer in layers.children():
            layer.dropout = Masked(real, activation)
            layer.dropout1 = layer.dropout2 = layer.dropout3 = Masked(real, residual)
            for part in (layer.self_attn, getattr(layer, "multihead_attn", layer.self_attn)):
                part.dropout = attention
    assert_equal(model, twin, pairs)
    assert not masks  # each was used once


@pytest.mark.parametrize(("d_k", "d_v"), [(3, 5), (5, 3), (None, None)])
def test_logits_equal_the_equations_of_the_paper(d_k: int | None, d_v: int | None) -> None:
    config = ModelConfig(
        d_model=6, d_ff=7, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
        d_k=d_k, d_v=d_v, dropout=0.0, max_positions=4,
    )  # fmt: skip
    model, pairs = random_transformer(config, VOCABULARY), batch([[4, 6], [5]], [[3, 5], [6]])
    paper = Paper(config, {name: value.numpy() for name, value, _ in by_layer(model)})
    expected = [
        paper.logits(src.tolist(), tgt.tolist())
        for src, tgt in zip(sequences(pairs.src), sequences(pairs.tgt_in), strict=True)
    ]
    with torch.inference_mode():
        got = model.logits(model(pairs)).numpy()
    np.testing.assert_allclose(got, np.concatenate(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("parts", [1, 3])
def test_gradients_in_bf16_are_as_exact_as_with_autocast_of_pytorch(norm: str, parts: int) -> None:
    config = ModelConfig(
        d_model=24, d_ff=40, num_heads=3, num_encoder_layers=2, num_decoder_layers=2,
        dropout=0.0, norm=norm, max_positions=8,
    )  # fmt: skip
    shapes = [SHAPES[name] for name in ("several_groups", "padding", "one_pair")]
    batches = [batch(*shape) for shape in shapes[:parts]]
    # Over many models: in a single one, a ReLU that rounding opens may dominate the error.
    errors = torch.tensor([bf16_errors(config, batches, seed) for seed in range(16)])
    ours, theirs = errors.square().mean(0).sqrt()
    assert 0 < ours < 1.3 * theirs < 0.1


def bf16_errors(config: ModelConfig, batches: list[Batch], seed: int) -> tuple[float, float]:
    """Relative errors of the gradient in bf16: ours, and that of PyTorch with autocast."""
    torch.manual_seed(seed)
    model = Transformer(config, VOCABULARY).double()
    exact, autocast = Twin(model), Twin(model).float()
    model.float()
    num_targets = sum(len(pairs.tgt_out) for pairs in batches)
    step = TrainStep(model, OptimizerConfig(), 0.1, "bf16", World(torch.device("cpu")))
    step.gradient(batches, num_targets)
    for twin in (exact, autocast):
        for pairs in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=twin is autocast):
                _, logits = twin(sequences(pairs.src), sequences(pairs.tgt_in))
            logits = logits.double() if twin is exact else logits.float()
            loss = cross_entropy(logits, pairs.tgt_out, label_smoothing=0.1, reduction="sum")
            (loss / num_targets).backward()
    gradients: list[list[Tensor]] = [[], [], []]
    for name, _, gradient in by_layer(model):
        theirs_name, rows = counterpart(name, config.d_model)
        both = [twin.get_parameter(theirs_name).grad for twin in (exact, autocast)]
        for flat, found in zip(gradients, [gradient, *both], strict=True):
            assert found is not None
            flat.append((found if found is gradient else found[rows]).flatten())
    ours, wanted, theirs = (torch.cat(flat).double() for flat in gradients)
    size = wanted.norm()
    return float((ours - wanted).norm() / size), float((theirs - wanted).norm() / size)
