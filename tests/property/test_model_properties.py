"""Properties of the model for any batch: causality, independence of packing, exact caching."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.models import random_transformer
from support.stores import store_of
from torch import Tensor

from transformer_mt.batch import IGNORE_INDEX, Batch, Packed
from transformer_mt.config import ModelConfig
from transformer_mt.data.batching import micro_batches
from transformer_mt.data.batching.micro_batches import collate, padded_lengths
from transformer_mt.data.batching.static_batches import BufferShape, fill
from transformer_mt.data.store.token_store import Indices
from transformer_mt.data.subwords.tokenizer import BOS
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.loss import smoothed_cross_entropy

VOCABULARY = 11
LONGEST = 6
SHAPE = BufferShape(src_tokens=48, tgt_tokens=40, max_length=8, parts=1)
"""Room for any six pairs below, so that there are always dummies."""

CONFIGS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre"},
    "post, learned": {"positions": "learned"},
    "pre, learned": {"norm": "pre", "positions": "learned"},
    "biases": {"attention_bias": True, "output_bias": True, "activation": "swish"},
    "untied": {"tied_embeddings": "none", "scale_embeddings": False, "activation": "gelu"},
    "source apart": {"tied_embeddings": "decoder", "norm": "pre", "layer_norm_eps": 1e-3},
    "dropout": {"attention_dropout": 0.5, "activation_dropout": 0.5},
}
VARIANTS = pytest.mark.parametrize("variant", CONFIGS)
Pair = tuple[list[int], list[int]]
Rows = list[list[int]]

token = st.integers(0, VOCABULARY - 1)
sequence = st.lists(token, min_size=1, max_size=LONGEST)
pairs_of_tokens = st.lists(st.tuples(sequence, sequence), min_size=1, max_size=6)


@cache
def transformer(variant: str) -> Transformer:
    """A float64 model with random weights, norms and biases included, in ``eval`` mode."""
    config = ModelConfig(
        d_model=8, d_ff=12, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, d_k=3, d_v=5,
        dropout=0.5, max_positions=LONGEST, **CONFIGS[variant],
    )  # fmt: skip
    return random_transformer(config, VOCABULARY).eval()


def packed(sequences: Rows) -> Packed:
    return Packed.from_sequences(sequences)


@pytest.fixture(scope="module", autouse=True)
def several_buckets() -> Iterator[None]:
    """Pairs as short as those below are in one bucket otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro_batches, "_LENGTHS", (2, 4, 6))
        patch.setattr(micro_batches, "_BUCKET_COST", 0)
        yield


def logits(model: Transformer, batch: Batch) -> Tensor:
    with torch.inference_mode():
        return model.logits(model(batch))[batch.tgt_out != IGNORE_INDEX]


@VARIANTS
@given(pairs=pairs_of_tokens, data=st.data())
def test_a_token_changes_the_logits_of_exactly_the_positions_that_see_it(
    variant: str, pairs: list[Pair], data: st.DataObject
) -> None:
    """Of a target token its own and the later ones of its sequence, of a source token all."""
    model, sides = transformer(variant), [packed(list(side)) for side in zip(*pairs, strict=True)]
    changed_side = data.draw(st.sampled_from([0, 1]), label="source or target")
    tokens = sides[changed_side].tokens.clone()
    changed = data.draw(st.integers(0, len(tokens) - 1), label="flat index of the changed token")
    shift = data.draw(st.integers(1, VOCABULARY - 1), label="shift")
    tokens[changed] = (tokens[changed] + shift) % VOCABULARY
    changed_sides = sides.copy()
    changed_sides[changed_side] = replace(sides[changed_side], tokens=tokens)
    before, after = (
        logits(model, Batch(src, tgt, tgt.tokens)) for src, tgt in (sides, changed_sides)
    )
    moved = (before - after).abs().amax(dim=1)
    source, target = ((side.positions == 0).cumsum(0) for side in sides)  # numbers of the pairs
    seen = target == (source, target)[changed_side][changed]
    if changed_side == 1:
        seen &= torch.arange(len(target)) >= changed
    assert (moved[seen] > 1e-9).all()
    assert (moved[~seen] <= 1e-12).all()


def batches_of(pairs: list[Pair], order: Indices) -> list[tuple[Batch, Indices]]:
    """The pairs in each form, and their order in it: buckets, a buffer."""
    store = store_of(pairs)
    (buffer,) = fill(store, order, SHAPE)
    lengths = padded_lengths(store.pair_lengths(order).max(axis=0))
    by_length = order[np.argsort(lengths, kind="stable")]
    return [(collate(store, order), by_length), (buffer, order)]


@VARIANTS
@given(pairs=pairs_of_tokens, data=st.data())
def test_batching_does_not_change_a_pair(
    variant: str, pairs: list[Pair], data: st.DataObject
) -> None:
    model = transformer(variant)
    order = data.draw(st.permutations(range(len(pairs))), label="order")
    alone = [logits(model, collate(store_of([pair]), np.array([0]))) for pair in pairs]
    for batch, numbers in batches_of(pairs, np.array(order)):
        parts = [alone[i] for i in numbers]
        together = logits(model, batch).split([*map(len, parts)])
        for got, expected in zip(together, parts, strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ["post", "pre"])
@given(pairs=pairs_of_tokens)
def test_loss_and_gradients_equal_those_of_single_pairs(variant: str, pairs: list[Pair]) -> None:
    model, everyone = transformer(variant), np.arange(len(pairs))

    def loss_and_gradients(batch: Batch) -> tuple[Tensor, ...]:
        weight: Any = model.get_parameter("embedding.weight")
        loss, nll = smoothed_cross_entropy(model(batch), weight, batch.tgt_out, 0.1)
        return loss.detach(), nll, *torch.autograd.grad(loss, list(model.parameters()))

    alone = [loss_and_gradients(collate(store_of([pair]), everyone[:1])) for pair in pairs]
    wanted = [sum(parts) for parts in zip(*alone, strict=True)]
    for batch, _ in batches_of(pairs, everyone):
        for got, expected in zip(loss_and_gradients(batch), wanted, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


@VARIANTS
@given(sources=st.lists(sequence, min_size=1, max_size=4), data=st.data())
def test_cached_decoding_with_dropped_sentences_and_reordered_beams_equals_full_decoding(
    variant: str, sources: Rows, data: st.DataObject
) -> None:
    model = transformer(variant)
    beam_size = data.draw(st.integers(1, 3), label="beams")
    width = data.draw(st.sampled_from([1, beam_size]), label="beams in the first step")
    alive = list(range(len(sources)))
    prefixes: list[Rows] = [[[] for _ in range(width)] for _ in alive]  # [B][W]
    parents = [[0] * width for _ in alive]
    with torch.inference_mode():
        state = model.init_decoder_state(packed(sources), beam_size)
    for t in range(LONGEST):
        for beams in prefixes:
            for prefix in beams:
                prefix.append(data.draw(token) if t else BOS)
        newest = torch.tensor([[prefix[-1] for prefix in beams] for beams in prefixes])
        with torch.inference_mode():
            got = model.decode_step(newest, torch.tensor(parents), state)
        rows = packed([sources[i] for i in alive for _ in range(width)])
        whole = packed([prefix for beams in prefixes for prefix in beams])
        afresh = logits(model, Batch(rows, whole, whole.tokens))
        expected = afresh.view(-1, t + 1, VOCABULARY)[:, -1].view(got.shape)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)

        # Any choice of parents, and any subset of the sentences in any order.
        one_row = st.lists(st.integers(0, width - 1), min_size=beam_size, max_size=beam_size)
        parents = [data.draw(one_row, label="parents") for _ in alive]
        kept = data.draw(
            st.lists(st.sampled_from(range(len(alive))), min_size=1, unique=True)
            | st.just(list(range(len(alive)))),
            label="sentences",
        )
        state.keep(kept)
        prefixes = [[list(prefixes[i][parent]) for parent in parents[i]] for i in kept]
        parents = [parents[i] for i in kept]
        alive, width = [alive[i] for i in kept], beam_size
        for keys, values in state.cross_kv:  # not expanded by the beam
            assert keys.shape[0] == values.shape[0] == len(alive)
