"""Runs the kernels of ``short_attention.py`` in Triton's interpreter; prints errors as JSON.

``TRITON_INTERPRET=1`` must be set before Triton is imported, so this is a program of its own.
"""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _convert_float

from transformer_mt.kernels.short_attention import short_attention

H, D, P = 2, 64, 0.3
QUERIES, KEYS = [3, 0, 70], [0, 64, 65]
"""Queries without keys, keys without queries, and more than a tile."""

_dot = InterpreterBuilder.create_dot


def _dot_of_numbers(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    """The interpreter stores bf16 as integers, and would multiply those."""

    def numbers(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        values = _convert_float(x.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return TensorHandle(values, tl.float32)

    return _dot(self, numbers(a), numbers(b), *rest)


def ends(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def inputs(dtype: torch.dtype, keys: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value as views of one packed tensor; and a gradient of the output."""
    torch.manual_seed(0)
    n, m = sum(QUERIES), sum(keys)
    query, key, value = torch.randn(max(n, m), 3, H, D).to(dtype).unbind(1)
    return query[:n], key[:m], value[:m], torch.randn(n, H, D).to(dtype)


def ours(
    q: Tensor, k: Tensor, v: Tensor, keys: Sequence[int], causal: bool, p: float, seed: int = 1
) -> Tensor:
    seeds = torch.tensor([seed])
    out: Tensor = short_attention(q, k, v, ends(QUERIES), ends(keys), seeds, causal, p)[0]
    return out


def reference(
    q: Tensor, k: Tensor, v: Tensor, keys: Sequence[int], causal: bool, mask: Tensor
) -> Tensor:
    """The formula, with the mask of dropout."""
    parts = zip(q.split(QUERIES), k.split(keys), v.split(keys), mask.split(QUERIES), strict=True)
    outputs = []
    for q_i, k_i, v_i, dropout in parts:
        scores = torch.einsum("qhd,khd->qhk", q_i, k_i) / D**0.5
        if causal:
            later = torch.ones(len(q_i), len(k_i)).triu(1).bool()
            scores = scores.masked_fill(later[:, None], -torch.inf)
        weights = scores.softmax(-1) * dropout[..., : len(k_i)]
        outputs.append(torch.einsum("qhk,khd->qhd", weights, v_i))
    return torch.cat(outputs)


def kept_weights(keys: Sequence[int], causal: bool, seed: int) -> Tensor:
    """[N, H, max] 1 where dropout keeps a weight: with one-hot values, outputs are the weights."""
    q, k, _, _ = inputs(torch.float32, keys)
    places = torch.cat([torch.arange(length) for length in keys])
    parts = []
    for start in range(0, max(keys), D):
        value = (places[:, None] == torch.arange(start, start + D)).to(q.dtype)
        parts.append(ours(q, k, value[:, None].repeat(1, H, 1), keys, causal, P, seed))
    return (torch.cat(parts, -1)[..., : max(keys)] != 0).double()


def errors(dtype: torch.dtype, causal: bool, p: float) -> list[float]:
    """Of the output and the gradients of query, key and value: maximum, relative to the largest."""
    keys = QUERIES if causal else KEYS
    *qkv, grad = inputs(dtype, keys)
    mask = kept_weights(keys, causal, 1) / (1 - P) if p else torch.ones(len(grad), H, max(keys))
    q, k, v = leaves = [x.detach().requires_grad_() for x in qkv]
    out = ours(q, k, v, keys, causal, p)
    found = [out, *torch.autograd.grad(out, leaves, grad)]
    q, k, v = leaves = [x.detach().double().requires_grad_() for x in qkv]
    out = reference(q, k, v, keys, causal, mask.double())
    wanted = [out, *torch.autograd.grad(out, leaves, grad.double())]
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, wanted, strict=True)]


def main() -> None:
    types = (torch.float32, 0.0), (torch.float32, P), (torch.bfloat16, 0.0)
    cases = product(types, (False, True))
    found = {f"{str(d)[6:]} causal={c} dropout={p}": errors(d, c, p) for (d, p), c in cases}
    q, k, v, _ = inputs(torch.float32, QUERIES)
    masks = [kept_weights(QUERIES, True, seed) for seed in (1, 1, 2)]
    allowed = torch.cat([torch.ones(n, max(QUERIES)).tril() for n in QUERIES])[:, None].bool()
    share = float(masks[0][allowed.expand_as(masks[0])].mean())
    # Schema, fake implementation and autograd of the operator.
    checked = torch.library.opcheck(
        short_attention,
        (*(x[:20].detach().requires_grad_() for x in (q, k, v)), ends([20]), ends([20]),
         torch.tensor([1]), True, P),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor",
                    "test_aot_dispatch_static"),
    )  # fmt: skip
    result = {
        "errors": found,
        "kept": share,
        "same_seed": torch.equal(masks[0], masks[1]),
        "other_seed": torch.equal(masks[0], masks[2]),
        "operator": checked,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    InterpreterBuilder.create_dot = _dot_of_numbers
    main()
