"""The model against PyTorch's Transformer layers and against the paper's equations in NumPy."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from paper import Paper
from support.random_weights import random_transformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from transformer_mt.batch import Batch, Packed
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.distributed.world import World
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.step import TrainStep

VOCABULARY = 13


def batch(src: list[list[int]], tgt: list[list[int]]) -> Batch:
    """Random tokens; ``src`` and ``tgt`` give the lengths of the sequences of each group."""
    rng = np.random.default_rng(2)

    def side(groups: list[list[int]]) -> Packed:
        lengths = np.array([n for group in groups for n in group])
        tokens = rng.integers(VOCABULARY, size=lengths.sum())
        return Packed.from_flat(tokens, lengths, [len(group) for group in groups])

    return Batch(side(src), target := side(tgt), target.tokens)


def sequences(packed: Packed) -> list[Tensor]:
    """Splits packed tokens into sequences, which begin at position 0."""
    starts = torch.cat(
        (torch.nonzero(packed.positions == 0)[:, 0], torch.tensor([packed.tokens.numel()]))
    )
    return list(packed.tokens.split(starts.diff().tolist()))


NAMES = {
    r"^embedding\.weight": "embedding",
    r"^embedding\.positions": "positions",
    r"^(encoder|decoder)\.": r"\1.layers.",
    r"^(encoder|decoder)_norm\.": r"\1.norm.",
    r"residual(\d)\.norm": r"norm\1",
    r"feed_forward\.": "",
    r"self_attention\.": "self_attn.",
    r"cross_attention\.": "multihead_attn.",
    r"\b(qkv|q|kv)_proj\.weight": "in_proj_weight",
}
"""Patterns of our parameter names → their names in ``Twin``."""


def by_layer(model: Transformer) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Names, values and gradients of the parameters, matrices shared by layers split by layer."""
    for name, parameter in model.named_parameters():
        if not name.startswith("source_projection"):
            yield name, parameter.data, parameter.grad
            continue
        values = parameter.data.chunk(len(model.decoder))
        grads = (
            [None] * len(values) if parameter.grad is None else parameter.grad.chunk(len(values))
        )
        for i, (value, grad) in enumerate(zip(values, grads, strict=True)):
            yield f"decoder.{i}.cross_attention.kv_proj.weight", value, grad


def counterpart(name: str, d_model: int) -> tuple[str, slice]:
    """Name of the twin's parameter that corresponds to one of ours, and the rows in it."""
    rows = {"q_proj": slice(d_model), "kv_proj": slice(d_model, None)}
    mine = rows.get(name.split(".")[-2], slice(None))
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name, mine


class Twin(nn.Module):
    """PyTorch's encoder and decoder stacks on padded sequences, with our model's weights."""

    def __init__(self, model: Transformer):
        super().__init__()
        c = model.config
        kwargs: dict[str, Any] = {
            "dropout": 0.0,
            "layer_norm_eps": 1e-6,
            "batch_first": True,
            "norm_first": c.norm == "pre",
        }
        encoder_layer = nn.TransformerEncoderLayer(c.d_model, c.num_heads, c.d_ff, **kwargs)
        decoder_layer = nn.TransformerDecoderLayer(c.d_model, c.num_heads, c.d_ff, **kwargs)

        def norm() -> nn.LayerNorm | None:
            return nn.LayerNorm(c.d_model, eps=1e-6) if c.norm == "pre" else None

        self.encoder = nn.TransformerEncoder(
            encoder_layer, c.num_encoder_layers, norm(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder_layer, c.num_decoder_layers, norm())
        self.embedding = nn.Parameter(model.embedding.weight.detach().clone())
        self.double()
        for name, parameter in self.named_parameters():
            if name.endswith(("in_proj_bias", "attn.out_proj.bias")):
                nn.init.zeros_(parameter)  # the projections of the paper have none
        if c.positions == "learned":
            self.positions = nn.Parameter(model.embedding.positions.detach().clone())
        else:
            self.positions = nn.Parameter(model.embedding.sinusoids, requires_grad=False)
        for name, value, _ in by_layer(model):
            theirs, rows = counterpart(name, c.d_model)
            self.get_parameter(theirs).data[rows] = value

    def forward(self, src: list[Tensor], tgt: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Encoder outputs and logits of all tokens but padding, packed."""
        (src_tokens, src_real), (tgt_tokens, tgt_real) = padded(src), padded(tgt)
        causal = nn.Transformer.generate_square_subsequent_mask(
            tgt_tokens.shape[1], dtype=self.embedding.dtype
        )
        hidden = self.encoder(self.embed(src_tokens), src_key_padding_mask=~src_real)
        out = self.decoder(
            self.embed(tgt_tokens), hidden, tgt_mask=causal, memory_key_padding_mask=~src_real
        )
        return hidden[src_real], out[tgt_real] @ self.embedding.T

    def embed(self, tokens: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.shape[1])
        return self.embedding[tokens] * scale + self.positions[: tokens.shape[1]]


def padded(tokens: list[Tensor]) -> tuple[Tensor, Tensor]:
    """[B, longest] tokens, and True where they are real."""
    real = pad_sequence([torch.ones_like(t) for t in tokens], batch_first=True).bool()
    return pad_sequence(tokens, batch_first=True), real


SHAPES = {
    "one_pair": ([[5]], [[4]]),
    "equal_lengths": ([[4, 4, 4]], [[3, 3, 3]]),
    "padding": ([[3, 6, 1]], [[5, 2, 4]]),
    "padding_on_one_side": ([[4, 2], [3, 3]], [[3, 3], [1, 5]]),
    "several_groups": ([[2, 3], [5, 5, 5], [7], [1, 1]], [[6, 1], [3, 3, 3], [2], [4, 5]]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_outputs_and_gradients_equal_pytorch(norm: str, positions: str, shape: str) -> None:
    config = ModelConfig(
        d_model=12, d_ff=20, num_heads=3, num_encoder_layers=2, num_decoder_layers=3,
        dropout=0.0, norm=norm, positions=positions, max_positions=8,
    )  # fmt: skip
    model, pairs = random_transformer(config, VOCABULARY), batch(*SHAPES[shape])
    twin = Twin(model)
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
        theirs_name, rows = counterpart(name, config.d_model)
        gradient = twin.get_parameter(theirs_name).grad
        assert ours is not None
        assert gradient is not None
        torch.testing.assert_close(ours, gradient[rows], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("num_heads", [1, 2, 12])
def test_any_number_of_heads(num_heads: int) -> None:
    config = ModelConfig(
        d_model=12, d_ff=7, num_heads=num_heads, num_encoder_layers=1, num_decoder_layers=1,
        dropout=0.0, max_positions=8,
    )  # fmt: skip
    model, pairs = random_transformer(config, VOCABULARY), batch([[3, 5]], [[4, 2]])
    _, expected = Twin(model)(sequences(pairs.src), sequences(pairs.tgt_in))
    torch.testing.assert_close(model.logits(model(pairs)), expected, rtol=0, atol=1e-10)


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
