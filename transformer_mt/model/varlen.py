"""Attention over sequences of different lengths, end to end in buffers of a fixed shape."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from transformer_mt.batch import CuSeqlens


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: CuSeqlens, keys: CuSeqlens, causal: bool
) -> Tensor:
    """Attention of sequence i of the queries to sequence i of the keys, heads side by side.

    On a GPU by FlashAttention's kernel for sequences of different lengths, in bf16 or fp16. On a
    CPU, where there is none, by a mask over all pairs of tokens: the same numbers, for tests.

    Args:
        query: [N, H, K].
        key: [M, H, K].
        value: [M, H, K].
        queries: Where sequences begin in the query.
        keys: Where they begin in key and value; as many sequences.
        causal: Let query t see keys up to t only; the two are then of the same sequences.

    Returns:
        [N, H, K].
    """
    if query.device.type == "cuda":
        output = varlen_attn(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.max_length,
            keys.max_length,
            window_size=(-1, 0) if causal else (-1, -1),
        )
        assert isinstance(output, Tensor)
        return output
    query_of, key_of = (
        torch.searchsorted(
            part.cu_seqlens[1:],
            torch.arange(len(x), dtype=torch.int32, device=x.device),
            right=True,
        )
        for part, x in ((queries, query), (keys, key))
    )
    mask = query_of[:, None] == key_of
    if causal:
        mask = mask.tril()
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q, k, v, mask)[0].transpose(0, 1)


def has_kernel(key_size: int, value_size: int) -> bool:
    """Whether the GPU's kernel takes heads of these sizes."""
    return key_size == value_size and key_size % 8 == 0 and key_size <= 256
