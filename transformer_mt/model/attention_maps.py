"""Attention weights of a model for one sentence pair (the paper's figures 3–5).

Shapes: S source and T target length, N and M packed target and source tokens, H heads, K head size.

The fused kernels of training and decoding never materialise these weights. They are recomputed
here from the inputs of the attention layers, captured by hooks, with the layers' own projections.
"""

from collections.abc import Iterator, Sequence
from threading import get_ident

import torch
from torch import Tensor, nn

from transformer_mt.batch import Packed
from transformer_mt.kernels.packed_attention import attention_weights, causal_mask
from transformer_mt.model.layers import CrossAttention, KeyValue, SelfAttention
from transformer_mt.model.transformer import Transformer


@torch.no_grad()
def attention_maps(
    model: Transformer, src: Sequence[int], tgt_in: Sequence[int]
) -> dict[str, list[Tensor]]:
    """Attention weights of all layers for one sentence pair.

    Args:
        model: In ``eval`` mode, on any device.
        src: The S token ids that the encoder reads.
        tgt_in: The T token ids that the decoder reads.

    Returns:
        Weights in fp32 on the CPU, one tensor for each layer; each row is a query and sums to 1.
        ``encoder``: its self-attention, [H, S, S]; ``decoder``: its own, [H, T, T], lower
        triangular; ``cross``: the decoder's attention to the encoder's output, [H, T, S].
    """
    layers = [m for m in model.modules() if isinstance(m, SelfAttention | CrossAttention)]
    weights = [next(maps) for maps in layer_maps(model, layers, [src], [tgt_in])]
    decoder = weights[len(model.encoder) :]
    encoder = weights[: len(model.encoder)]
    return {"encoder": encoder, "decoder": decoder[::2], "cross": decoder[1::2]}


@torch.no_grad()
def layer_maps(
    model: Transformer,
    layers: Sequence[nn.Module],
    src: Sequence[Sequence[int]],
    tgt_in: Sequence[Sequence[int]],
) -> list[Iterator[Tensor]]:
    """Attention weights of some layers, in the order they run, for a batch of sentence pairs.

    Each is computed when it is asked for, to save memory.

    Args:
        model: In ``eval`` mode, on any device.
        layers: Attention layers of the model.
        src: What the encoder reads.
        tgt_in: What the decoder reads.

    Returns:
        For each layer the weights [H, T, S] of each pair, fp32 on the CPU.
    """
    captured: list[Iterator[Tensor]] = []
    src_lengths, tgt_lengths = list(map(len, src)), list(map(len, tgt_in))
    thread = get_ident()

    def capture(layer: nn.Module, inputs: tuple[Tensor, object, KeyValue, object]) -> None:
        if get_ident() != thread:  # which may translate with the same model
            return
        causal, queries, keys = False, tgt_lengths, src_lengths
        if isinstance(layer, SelfAttention):
            query, key, _ = layer.qkv_proj(inputs[0]).split(layer.sizes, dim=-1)
            causal = layer.causal
            queries = keys = tgt_lengths if causal else src_lengths
        else:
            assert isinstance(layer, CrossAttention)
            query, key = layer.q_proj(inputs[0]), inputs[2][0]
        pairs = zip(query.cpu().split(queries), key.cpu().split(keys), strict=True)
        captured.append(_weights(*pair, model.config.num_heads, causal) for pair in pairs)

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
