"""Loss and gradients do not depend on how a batch is packed, nor on its other pairs."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.stores import store_of
from torch import Tensor, nn

from transformer_mt.batch import IGNORE_INDEX, Batch
from transformer_mt.config import ModelConfig
from transformer_mt.data.batching.micro_batches import collate
from transformer_mt.data.batching.static_batches import BufferShape, fill
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.loss import smoothed_cross_entropy

VOCABULARY = 11
SHAPE = BufferShape(src_tokens=48, tgt_tokens=40, max_length=8, parts=1)
"""Room for any six pairs below, so that there are always dummies."""

sequence = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6)
pairs_of_tokens = st.lists(st.tuples(sequence, sequence), min_size=1, max_size=6)


@cache
def transformer(norm: str) -> Transformer:
    config = ModelConfig(
        d_model=8, d_ff=12, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
        dropout=0.0, norm=norm, max_positions=8,
    )  # fmt: skip
    model, generator = Transformer(config, VOCABULARY).double(), torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = mean + 0.4 * noise
    return model


def loss_and_gradients(model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    weight: Any = model.get_parameter("embedding.weight")
    loss, nll = smoothed_cross_entropy(model(batch), weight, batch.tgt_out, 0.1)
    return loss.detach(), nll, *torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("norm", ["post", "pre"])
@given(pairs=pairs_of_tokens, data=st.data())
def test_loss_and_gradients_equal_those_of_single_pairs(
    norm: str, pairs: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    model, store = transformer(norm), store_of(pairs)
    everyone = np.arange(len(pairs))
    alone = [loss_and_gradients(model, collate(store, [np.array([i])])) for i in everyone]
    wanted = [sum(parts) for parts in zip(*alone, strict=True)]
    cut = data.draw(st.integers(0, len(pairs)), label="end of the first bucket")
    buckets = [bucket for bucket in np.split(everyone, [cut]) if len(bucket)]
    (buffer,) = fill(store, everyone, SHAPE)
    for batch in (collate(store, buckets), collate(store, buckets, few_shapes=True), buffer):
        got = loss_and_gradients(model, batch)
        for ours, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("packing", ["buckets", "grid", "buffer"])
@given(pairs=pairs_of_tokens.filter(lambda pairs: len(pairs) > 1), data=st.data())
def test_changing_a_pair_does_not_change_other_pairs(
    packing: str, pairs: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    model = transformer("post")
    number = data.draw(st.integers(0, len(pairs) - 1), label="the pair that changes")
    shift = data.draw(st.integers(1, VOCABULARY - 1), label="shift of its tokens")
    src, tgt = ([(t + shift) % VOCABULARY for t in side] for side in pairs[number])
    changed = [*pairs[:number], (src, tgt), *pairs[number + 1 :]]

    def outputs(pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, ...]:
        everyone, store = np.arange(len(pairs)), store_of(pairs)
        if packing == "buckets":
            batch = collate(store, [everyone])
        elif packing == "grid":
            batch = collate(store, [everyone], few_shapes=True)
        else:
            (batch,) = fill(store, everyone, SHAPE)
        with torch.inference_mode():
            hidden = model(batch)[batch.tgt_out != IGNORE_INDEX]
        return hidden.split([len(tgt) for _, tgt in pairs])

    before, after = outputs(pairs), outputs(changed)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(old, new) == (i != number)
