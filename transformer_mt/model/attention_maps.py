"""Where a model looks: the attention weights of one sentence pair (§3.2, the paper's figures 3–5).

The fused kernels of training and decoding never hold these weights. Here they are computed once
more, from the inputs that the layers were given and by the layers' own projections.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from transformer_mt.batch import Packed
from transformer_mt.model.attention import CrossAttention, KeysValues, SelfAttention
from transformer_mt.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of every layer, fp32 on the CPU; each row is a query and sums to 1."""

    encoder: list[Tensor]
    """[H, S, S] a layer: source tokens on source tokens."""
    decoder: list[Tensor]
    """[H, T, T] a layer: target tokens on those up to themselves."""
    cross: list[Tensor]
    """[H, T, S] a layer: target tokens on source tokens."""


@torch.no_grad()
def attention_maps(model: Transformer, src: Sequence[int], tgt_in: Sequence[int]) -> AttentionMaps:
    """The weights with which a model, without dropout, attends in one pair of sentences.

    Args:
        model: On any device; afterwards as it was, in training mode if it was in it.
        src: S token ids as the encoder reads them, the end symbol last.
        tgt_in: T token ids as the decoder reads them, the begin symbol first.
    """
    device = model.embedding.weight.device
    maps, training = AttentionMaps([], [], []), model.training
    model.eval()
    try:
        with ExitStack() as hooks:
            for layer in model.encoder.children():
                _watch(layer.get_submodule("self_attention"), maps.encoder, hooks)
            for layer in model.decoder.children():
                _watch(layer.get_submodule("self_attention"), maps.decoder, hooks)
                _watch(layer.get_submodule("cross_attention"), maps.cross, hooks)
            source = Packed.from_sequences([src]).to(device)
            model.decode(Packed.from_sequences([tgt_in]).to(device), model.encode(source), source)
    finally:
        model.train(training)
    return maps


@torch.no_grad()
def cross_attention_maps(
    model: Transformer, layer: int, src: Sequence[Sequence[int]], tgt_in: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """The weights of one decoder layer's attention to the source, in many pairs at once.

    Args:
        model: In ``eval`` mode, on any device.
        layer: Which one, from 0.
        src: For each pair, S token ids as the encoder reads them.
        tgt_in: For each pair, T token ids as the decoder reads them.

    Returns:
        For each pair [H, T, S], fp32 on the CPU; one at a time, for all are many.
    """
    attention = model.decoder[layer].get_submodule("cross_attention")
    assert isinstance(attention, CrossAttention)
    device = model.embedding.weight.device
    seen: list[Tensor] = []

    def look(_module: nn.Module, inputs: tuple[Tensor, object, KeysValues, object]) -> None:
        x, _, (key, _), _ = inputs
        seen.extend((attention.q_proj(x).cpu(), key.cpu()))

    source = Packed.from_sequences(src).to(device)
    with attention.register_forward_pre_hook(look):
        model.decode(Packed.from_sequences(tgt_in).to(device), model.encode(source), source)
    queries, keys = (
        x.split([len(ids) for ids in side]) for x, side in zip(seen, (tgt_in, src), strict=True)
    )
    return (
        _weights(q, k, attention.num_heads, causal=False)
        for q, k in zip(queries, keys, strict=True)
    )


def _watch(attention: nn.Module, maps: list[Tensor], hooks: ExitStack) -> None:
    hook = _self_attention if isinstance(attention, SelfAttention) else _cross_attention
    hooks.callback(attention.register_forward_pre_hook(partial(hook, maps)).remove)


def _self_attention(maps: list[Tensor], attention: SelfAttention, inputs: tuple[Tensor]) -> None:
    query, key, _ = attention.qkv_proj(inputs[0]).split(attention.sizes, dim=-1)
    maps.append(_weights(query, key, attention.num_heads, attention.causal))


def _cross_attention(
    maps: list[Tensor],
    attention: CrossAttention,
    inputs: tuple[Tensor, object, KeysValues, object],
) -> None:
    x, _, (key, _), _ = inputs
    maps.append(_weights(attention.q_proj(x), key, attention.num_heads, causal=False))


def _weights(query: Tensor, key: Tensor, num_heads: int, causal: bool) -> Tensor:
    """softmax(Q Kᵀ / √d_k), equation (1): flat [T, H·K], [S, H·K] → [H, T, S]."""
    q, k = (x.float().cpu().unflatten(-1, (num_heads, -1)).transpose(0, 1) for x in (query, key))
    with torch.autocast("cpu", enabled=False):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1)
