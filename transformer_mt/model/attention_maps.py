"""Attention weights of a model for one sentence pair (the paper's figures 3–5).

Shapes: S source and T target length, N and M packed target and source tokens, H heads, K head size.

The fused kernels of training and decoding never materialise these weights. They are recomputed
here from the inputs of the attention layers, captured by hooks, with the layers' own projections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident

import torch
from torch import Tensor, nn

from transformer_mt.batch import Packed
from transformer_mt.kernels.packed_attention import attention_weights, causal_mask
from transformer_mt.model.layers import CrossAttention, KeyValue, SelfAttention
from transformer_mt.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of every layer, fp32 on the CPU; each row is a query and sums to 1."""

    encoder: list[Tensor]
    """Encoder self-attention, [H, S, S] for each layer."""
    decoder: list[Tensor]
    """Decoder self-attention, [H, T, T] for each layer, lower triangular."""
    cross: list[Tensor]
    """Encoder–decoder attention, [H, T, S] for each layer."""
    src: list[str]
    """The S pieces that the encoder reads, with the end symbol."""
    tgt: list[str]
    """T + 1 pieces: the decoder reads all but the last, and predicts all but the first."""

    def layers(self, kind: str) -> tuple[list[Tensor], list[str], list[str]]:
        """Weights of all layers of one kind, with the pieces of its rows and columns.

        A row of the decoder is named after the piece that it predicts, not the one that it reads:
        the weights of a word are then in its own row.

        Args:
            kind: ``encoder``, ``decoder`` or ``cross``.
        """
        rows = self.src if kind == "encoder" else self.tgt[1:]
        columns = self.tgt[:-1] if kind == "decoder" else self.src
        return getattr(self, kind), rows, columns


@torch.no_grad()
def attention_maps(
    model: Transformer,
    src: Sequence[int],
    tgt: Sequence[int],
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
) -> AttentionMaps:
    """Attention weights of all layers for one sentence pair.

    Args:
        model: In ``eval`` mode, on any device.
        src: S token ids, with the end symbol.
        tgt: T + 1 token ids, from the start symbol to the last one that is predicted.
        src_pieces: Text of the source tokens.
        tgt_pieces: Text of the target tokens.
    """
    layers = [m for m in model.modules() if isinstance(m, SelfAttention | CrossAttention)]
    captured = _queries_and_keys(model, layers, [src], [tgt[:-1]])
    weights = [
        _weights(query, key, model.config.num_heads, getattr(layer, "causal", False))
        for layer, (query, key) in zip(layers, captured, strict=True)
    ]
    decoder = weights[len(model.encoder) :]
    return AttentionMaps(
        encoder=weights[: len(model.encoder)],
        decoder=decoder[::2],
        cross=decoder[1::2],
        src=list(src_pieces),
        tgt=list(tgt_pieces),
    )


@torch.no_grad()
def cross_attention_maps(
    model: Transformer, layer: int, src: Sequence[Sequence[int]], tgt_in: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """Encoder–decoder attention weights of one decoder layer for a batch of sentence pairs.

    ``src`` and ``tgt_in`` are what encoder and decoder read; the model is in ``eval`` mode.

    Returns:
        [H, T, S] of each pair, fp32 on the CPU, computed lazily to save memory.
    """
    attention = model.decoder[layer].get_submodule("cross_attention")
    ((queries, keys),) = _queries_and_keys(model, [attention], src, tgt_in)
    pairs = zip(queries.split(list(map(len, tgt_in))), keys.split(list(map(len, src))), strict=True)
    return (_weights(query, key, model.config.num_heads, causal=False) for query, key in pairs)


def _queries_and_keys(
    model: Transformer,
    layers: Sequence[nn.Module],
    src: Sequence[Sequence[int]],
    tgt_in: Sequence[Sequence[int]],
) -> list[tuple[Tensor, Tensor]]:
    """Packed queries [N, H·K] and keys [M, H·K] of attention layers, in the order they run."""
    captured: list[tuple[Tensor, Tensor]] = []
    thread = get_ident()

    def capture(layer: nn.Module, inputs: tuple[Tensor, object, KeyValue, object]) -> None:
        if get_ident() != thread:  # which may translate with the same model
            return
        if isinstance(layer, SelfAttention):
            query, key, _ = layer.qkv_proj(inputs[0]).split(layer.sizes, dim=-1)
        else:
            assert isinstance(layer, CrossAttention)
            query, key = layer.q_proj(inputs[0]), inputs[2][0]
        captured.append((query.cpu(), key.cpu()))

    hooks = [layer.register_forward_pre_hook(capture) for layer in layers]
    try:
        device = model.embedding.weight.device
        source = Packed.from_sequences(src).to(device)
        model.decode(Packed.from_sequences(tgt_in).to(device), model.encode(source), source)
    finally:
        for hook in hooks:
            hook.remove()
    return captured


def _weights(query: Tensor, key: Tensor, num_heads: int, causal: bool) -> Tensor:
    """The weights of equation (1) of one pair: packed [T, H·K], [S, H·K] → [H, T, S]."""
    q, k = (x.float().unflatten(-1, (num_heads, -1)).transpose(0, 1) for x in (query, key))
    mask = causal_mask(len(query), q.dtype) if causal else q.new_zeros(1)
    with torch.autocast("cpu", enabled=False):
        return attention_weights(q, k, mask)
