"""Batches in buffers of one fixed shape, for a training step that is compiled once.

A GPU runs a step fastest with static shapes and without decisions on the CPU. So an update's share
is packed in buffers of a fixed number of tokens, and the rest of a buffer is filled with *dummy
pairs*, which attend only to themselves and which the loss ignores. The plan (``plan.py``) makes
updates so similar that dummies are about 1% of the tokens on one GPU, and 3.5% when eight GPUs
share an update. The number of sequences is that of the pairs and dummies: attention never gets an
empty sequence, for which some kernels return NaN.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.batch import Batch, CuSeqlens
from transformer_mt.data.batching.micro_batches import pack_pairs, split_batch
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.batching.sharded_plan import ShardedPlan
from transformer_mt.data.store.token_store import Indices, TokenStore

_MULTIPLE = 64
"""Buffer sizes are multiples of this: matrix units work on tiles of 64 or 128 rows."""

_SAMPLED_STEPS = 200
"""Updates that determine the sizes; a later one that does not fit is split."""


@dataclass(frozen=True)
class BufferShape:
    """The fixed shape of a buffered batch, the same for every update of a run."""

    src_tokens: int
    """Number of source tokens, dummies included."""
    tgt_tokens: int
    """Number of target tokens, dummies included."""
    max_length: int
    """Maximum length of a sequence, dummies included."""
    parts: int
    """Number of buffers that one rank usually needs for an update."""


def plan_buffers(
    plan: BatchPlan | ShardedPlan, max_length: int, max_tokens: int, world_size: int = 1
) -> BufferShape:
    """Chooses the buffer shape for the updates of a plan.

    Args:
        plan: The global batches of the training pairs.
        max_length: Maximum length of a sequence of any update of the run.
        max_tokens: Maximum number of tokens per side in one buffer.
        world_size: Number of ranks that share an update.
    """
    batches = [plan[step] for step in range(min(plan.steps_per_epoch, _SAMPLED_STEPS))]
    largest = max(_largest_share(batches, 1)[:2])
    parts = max(1, largest // (world_size * max_tokens))
    while True:
        src, tgt, pairs = _largest_share(batches, parts * world_size)
        dummies = max(src, tgt) // _round_up(max_length) + 3
        # Each dummy pair needs a token on each side, even next to a pair of the longest sentences.
        minimum = _round_up(max_length + dummies)
        src, tgt = (max(_round_up(side + 2), minimum) for side in (src, tgt))
        if max(src, tgt) <= max(max_tokens, minimum) or pairs == 1:
            return BufferShape(src, tgt, _round_up(max_length), parts)
        parts += 1


def buffered_batches(
    batch: GlobalBatch, shape: BufferShape, rank: int = 0, world_size: int = 1
) -> list[Batch]:
    """One rank's share of a global batch in buffers; an empty share is a buffer of dummies."""
    return [
        buffer
        for share in split_batch(batch, shape.parts * world_size)[rank::world_size]
        for buffer in fill(batch.store, share, shape)
    ]


def fill(store: TokenStore, pairs: Indices, shape: BufferShape) -> list[Batch]:
    """Packs pairs in one buffer, or in several if they do not fit."""
    src, tgt = store.src.gather(pairs), store.tgt.gather(pairs)
    dummies = _dummy_lengths(len(src[0]), len(tgt[0]), shape)
    if dummies is None:
        half = len(pairs) // 2
        return fill(store, pairs[:half], shape) + fill(store, pairs[half:], shape)
    # Dummies have no positions: they may be longer than the table of learned ones.
    src_ends, tgt_ends = (
        np.cumsum(np.concatenate([[0], lengths, added]), dtype=np.int32)
        for lengths, added in zip((src[1], tgt[1]), dummies, strict=True)
    )
    return [
        pack_pairs(
            src,
            tgt,
            CuSeqlens(torch.from_numpy(src_ends), shape.max_length),
            CuSeqlens(torch.from_numpy(tgt_ends), shape.max_length),
            (shape.src_tokens, shape.tgt_tokens),
        )
    ]


def _largest_share(batches: list[GlobalBatch], num_shares: int) -> tuple[int, int, int]:
    """Maximum source tokens, target tokens and pairs in a share of any batch."""
    lengths = [
        batch.store.pair_lengths(share)
        for batch in batches
        for share in split_batch(batch, num_shares)
    ]
    src, tgt, pairs = np.max([[*side.sum(axis=1), side.shape[1]] for side in lengths], axis=0)
    return int(src), int(tgt), int(pairs)


def _dummy_lengths(
    src_tokens: int, tgt_tokens: int, shape: BufferShape
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None:
    """Lengths of the dummy pairs that fill the rest of a buffer; None if the pairs do not fit."""
    free = shape.src_tokens - src_tokens, shape.tgt_tokens - tgt_tokens
    count = -(-max(free) // shape.max_length)
    if min(free) < count:  # each has a token on both sides: no sequence is empty
        return None
    lengths = [(np.arange(count) + total) // count for total in free]  # they sum to the total
    return lengths[0].astype(np.int32), lengths[1].astype(np.int32)


def _round_up(size: int) -> int:
    return -(-size // _MULTIPLE) * _MULTIPLE
