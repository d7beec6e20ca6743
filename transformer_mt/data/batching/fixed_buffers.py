"""Batches in buffers of one fixed shape, for a training step that is compiled once.

A GPU runs a step fastest when nothing about it changes but the numbers: same shapes, same
addresses, no decision taken by the CPU. So an update's share is laid in buffers of a fixed number
of tokens, and what is left at the end is filled with *dummy pairs*: they attend to themselves, and
no loss counts them. The plan of batches (``batching``) makes all updates so much alike that the
dummies are about 1% of the tokens on one GPU, and 3.5% where eight share an update.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.batch import IGNORED, Batch, CuSeqlens, Packed, TokenArray, positions
from transformer_mt.data.batching.micro_batches import deal_pairs, shifted_right
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch, Indices
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import PAD

_ROUND = 64
"""Buffer sizes are multiples of this: matrix units work on tiles of 64 or 128 rows."""

_SURVEYED = 200
"""Updates of the first epoch that decide the sizes; a later one that does not fit is cut in two."""


@dataclass(frozen=True)
class BufferShape:
    """The fixed shape of a buffered batch, the same for every update of a run."""

    src_tokens: int
    tgt_tokens: int
    pairs: int
    """Most pairs, dummies included."""
    max_length: int
    """Longest sequence, dummies included."""
    parts: int
    """Buffers that one update fills on one rank, as a rule."""


def plan_buffers(
    store: TokenStore, plan: BatchPlan, max_tokens: int, world_size: int = 1
) -> BufferShape:
    """The buffers that the updates of a plan need.

    Args:
        store: The training pairs.
        plan: Their global batches.
        max_tokens: Most tokens a side in one buffer.
        world_size: Ranks that share an update.
    """
    longest = store.longest
    max_length = _up(longest)
    batches = [plan[step] for step in range(min(plan.steps_per_epoch, _SURVEYED))]
    most = max(_largest_share(store, batches, 1)[:2])
    parts = max(1, most // (world_size * max_tokens))
    while True:
        src, tgt, pairs = _largest_share(store, batches, parts * world_size)
        dummies = max(src, tgt) // max_length + 3
        # Each dummy pair takes a token of each side, also beside a pair of the longest sentences.
        least = _up(longest + dummies)
        src, tgt = (max(_up(side + 2), least) for side in (src, tgt))
        if max(src, tgt) <= max(max_tokens, least) or pairs == 1:
            return BufferShape(src, tgt, pairs + dummies, max_length, parts)
        parts += 1


def buffered_batches(
    store: TokenStore, batch: GlobalBatch, shape: BufferShape, rank: int = 0, world_size: int = 1
) -> list[Batch]:
    """This rank's share of an update, in buffers of one shape; dummies alone if it has none."""
    shares = deal_pairs(store, batch, shape.parts * world_size)[rank::world_size]
    nothing = np.empty(0, np.int64)
    return [
        buffer
        for share in shares
        for buffer in fill(store, np.concatenate([nothing, *share]), shape)
    ]


def fill(store: TokenStore, pairs: Indices, shape: BufferShape) -> list[Batch]:
    """Lays pairs in one buffer, or in as many as it takes."""
    (src, src_lengths), (tgt, tgt_lengths) = store.src.gather(pairs), store.tgt.gather(pairs)
    dummies = _dummies(len(src), len(tgt), len(pairs), shape)
    if dummies is None:
        half = len(pairs) // 2
        return fill(store, pairs[:half], shape) + fill(store, pairs[half:], shape)
    tgt_out = np.full(shape.tgt_tokens, IGNORED, np.int64)
    tgt_out[: len(tgt)] = tgt
    tgt_in = shifted_right(tgt, tgt_lengths)
    buffer = Batch(
        src=_packed(src, src_lengths, dummies[0], shape.src_tokens, shape),
        tgt_in=_packed(tgt_in, tgt_lengths, dummies[1], shape.tgt_tokens, shape),
        tgt_out=torch.from_numpy(tgt_out),
    )
    return [buffer]


def _largest_share(
    store: TokenStore, batches: list[GlobalBatch], count: int
) -> tuple[int, int, int]:
    """Most source tokens, target tokens and pairs in any of ``count`` shares of any batch."""
    shares = [np.concatenate(s) for batch in batches for s in deal_pairs(store, batch, count) if s]
    src, tgt = (
        max(int((side.offsets[pairs + 1] - side.offsets[pairs]).sum()) for pairs in shares)
        for side in (store.src, store.tgt)
    )
    return src, tgt, max(len(pairs) for pairs in shares)


def _dummies(
    src: int, tgt: int, pairs: int, shape: BufferShape
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None:
    """Lengths of the dummy pairs that fill what is left; None if the pairs do not fit."""
    left = shape.src_tokens - src, shape.tgt_tokens - tgt
    if left == (0, 0) and pairs <= shape.pairs:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    count = -(-max(left) // shape.max_length)
    # Each has a token of both sides: no kernel is asked for attention to nothing.
    if min(left) < count or pairs + count > shape.pairs:
        return None
    lengths = [(np.arange(count) + total) // count for total in left]  # they sum to the total
    return lengths[0].astype(np.int32), lengths[1].astype(np.int32)


def _packed(
    tokens: TokenArray,
    lengths: npt.NDArray[np.int32],
    dummies: npt.NDArray[np.int32],
    size: int,
    shape: BufferShape,
) -> Packed:
    row = np.full(size, PAD, np.int64)
    row[: len(tokens)] = tokens
    lengths = np.concatenate([lengths, dummies])
    bounds = np.full(shape.pairs + 1, size, np.int32)
    bounds[0] = 0
    bounds[1 : len(lengths) + 1] = np.cumsum(lengths)
    return Packed(
        torch.from_numpy(row),
        torch.from_numpy(positions(lengths)),
        CuSeqlens(torch.from_numpy(bounds), shape.max_length),
    )


def _up(size: int) -> int:
    return -(-size // _ROUND) * _ROUND
