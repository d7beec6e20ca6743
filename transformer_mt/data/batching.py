"""(seed, epoch) → the plan of global batches; this rank's share of one → micro-batches.

"Sentence pairs were batched together by approximate sequence length" (§5.1). As in the authors'
training on 8 GPUs, where each GPU had sentences of one length, an update here mixes 8 *chunks*:
each holds pairs of about the same length, and chunks of any lengths meet in an update. The plan
depends on the data, the seed and the epoch, never on the hardware (DESIGN, invariant 1).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer_mt.data.packed import Packed
from transformer_mt.data.store import TokenStore
from transformer_mt.data.tokenizer import BOS

CHUNKS_PER_BATCH = 8
"""Chunks of one length in an update: the paper's number of GPUs."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Pairs as the model takes them."""

    src: Packed
    """Source tokens with the end symbol."""
    tgt_in: Packed
    """Target tokens, shifted right: they begin with the start symbol (§3.1).

    The authors' code begins them with a vector of zeros instead."""
    tgt_out: Tensor
    """[N] int64: the token to predict at each position of ``tgt_in``; ends with the end symbol."""
    weight: float = 1.0
    """0 for a stand-in batch, whose loss must not count."""

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        tgt_out = self.tgt_out.to(device, non_blocking=True)
        return Batch(self.src.to(device), self.tgt_in.to(device), tgt_out, self.weight)


@dataclass(frozen=True)
class GlobalBatch:
    """The pairs of one update, over all ranks."""

    chunks: tuple[Indices, ...]
    """Indices of pairs, each chunk of about one length."""
    num_targets: int
    """Target tokens in all: the denominator of the update's loss (DESIGN, invariant 2)."""


class BatchPlan:
    """The global batches of every epoch, each pair exactly once an epoch.

    Args:
        store: The training pairs.
        batch_tokens: Most target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
    """

    def __init__(self, store: TokenStore, batch_tokens: int, seed: int):
        self._lengths = store.tgt.lengths
        # Both sides of a chunk are to be of about one length; padding is the cost otherwise.
        self._longer = np.maximum(self._lengths, store.src.lengths)
        self._batch_tokens = batch_tokens
        self._seed = seed
        # Pairs that tie in this order are of one target length: every epoch cuts alike.
        chunk_tokens = max(1, batch_tokens // CHUNKS_PER_BATCH)
        in_order = self._lengths[np.lexsort((self._lengths, self._longer))]
        self._bounds = _cut(in_order, chunk_tokens)
        self._epoch = -1
        self._batches: list[tuple[Indices, ...]] = []

    @property
    def steps_per_epoch(self) -> int:
        """Updates in an epoch; the same for every epoch."""
        return math.ceil((len(self._bounds) - 1) / CHUNKS_PER_BATCH)

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._plan(epoch)
        chunks = self._batches[index]
        return GlobalBatch(chunks, sum(int(self._lengths[chunk].sum()) for chunk in chunks))

    def _plan(self, epoch: int) -> list[tuple[Indices, ...]]:
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._lengths))
        order = order[np.lexsort((self._lengths[order], self._longer[order]))]
        starts, stops = self._bounds[:-1], self._bounds[1:]
        shuffled = rng.permutation(len(starts))
        chunks = [order[starts[c] : stops[c]] for c in shuffled]
        return [
            tuple(chunks[i : i + CHUNKS_PER_BATCH]) for i in range(0, len(chunks), CHUNKS_PER_BATCH)
        ]


def micro_batches(
    store: TokenStore, batch: GlobalBatch, max_tokens: int, rank: int = 0, world_size: int = 1
) -> list[Batch]:
    """This rank's share of an update, cut so that each part holds at most ``max_tokens`` a side.

    Every rank gets each ``world_size``-th pair of each chunk, so that shares are alike in number
    and length. A rank whose share is empty gets one stand-in of weight 0: it must take part in
    the gradient's all-reduce.
    """
    shares = [share for chunk in batch.chunks if len(share := chunk[rank::world_size])]
    if not shares:
        stand_in = next(chunk for chunk in batch.chunks if len(chunk))[:1]
        return [collate(store, [stand_in], weight=0.0)]
    return [collate(store, groups) for groups in _split(store, shares, max_tokens)]


def collate(store: TokenStore, groups: list[Indices], weight: float = 1.0) -> Batch:
    """Reads groups of pairs from the store and packs them."""
    src = [[store.src[i] for i in group] for group in groups]
    tgt = [[store.tgt[i] for i in group] for group in groups]
    tgt_in = [[np.concatenate([[BOS], t[:-1]]) for t in group] for group in tgt]
    tgt_out = np.concatenate([t for group in tgt for t in group]).astype(np.int64)
    return Batch(
        src=Packed.from_groups(src),
        tgt_in=Packed.from_groups(tgt_in),
        tgt_out=torch.from_numpy(tgt_out),
        weight=weight,
    )


def _cut(lengths: npt.NDArray[np.int32], limit: int) -> Indices:
    """Bounds of the longest runs of ``lengths`` that sum to at most ``limit``.

    A single length above the limit is a run of its own.
    """
    totals = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bounds = [0]
    while bounds[-1] < len(lengths):
        fits = int(np.searchsorted(totals, totals[bounds[-1]] + limit, side="right")) - 1
        bounds.append(max(fits, bounds[-1] + 1))
    return np.array(bounds, dtype=np.int64)


def _split(store: TokenStore, groups: list[Indices], limit: int) -> Iterator[list[Indices]]:
    """Cuts groups, in order, into parts that hold at most ``limit`` tokens on either side."""
    pairs = np.concatenate(groups)
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    lengths = np.stack(
        [side.offsets[pairs + 1] - side.offsets[pairs] for side in (store.src, store.tgt)], axis=1
    )
    part_of = np.zeros_like(group_of)
    used = np.zeros(2, dtype=np.int64)
    for i, length in enumerate(lengths):
        used += length
        part_of[i] = part_of[i - 1] if i else 0
        if i and used.max() > limit:
            part_of[i] += 1
            used = length.copy()
    for part in range(part_of[-1] + 1):
        inside = part_of == part
        yield [pairs[inside & (group_of == g)] for g in np.unique(group_of[inside])]
