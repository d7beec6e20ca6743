"""(seed, epoch) → the plan of global batches; this rank's share of one → micro-batches.

"Sentence pairs were batched together by approximate sequence length" (§5.1). As in the authors'
training on 8 GPUs, where each GPU had sentences of one length, an update here mixes 8 *chunks*:
each holds pairs of about the same length, and chunks of any lengths meet in an update. The plan
depends on the data, the seed and the epoch, never on the hardware.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transformer_mt.data.chunks import cut, cut_into, deal
from transformer_mt.data.packed import Change, Packed
from transformer_mt.data.store import TokenStore
from transformer_mt.data.tokenizer import BOS
from transformer_mt.errors import InputError

CHUNKS_PER_BATCH = 8
"""Chunks of one length in an update: the paper's number of GPUs."""

IGNORED = -100
"""In ``tgt_out``: nothing is to be predicted here."""

_BLOCK = 32
"""Batches that exchange chunks until all have about as many source tokens."""

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
    """[N] int64: the token to predict at each position of ``tgt_in``, ending with the end symbol;
    ``IGNORED`` where there is nothing to predict."""
    weight: float = 1.0
    """0 for a stand-in batch, whose loss must not count."""

    def map(self, change: Change) -> "Batch":
        """The same batch, every tensor changed."""
        src, tgt_in = self.src.map(change), self.tgt_in.map(change)
        return Batch(src, tgt_in, change(self.tgt_out), self.weight)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in memory that a GPU reads by itself, while the CPU goes on."""
        return self.map(Tensor.pin_memory)


@dataclass(frozen=True)
class GlobalBatch:
    """The pairs of one update, over all ranks."""

    chunks: tuple[Indices, ...]
    """Indices of pairs, each chunk of about one length."""
    num_targets: int
    """Target tokens in all: the denominator of the update's loss."""


class BatchPlan:
    """The global batches of every epoch, each pair exactly once an epoch.

    Args:
        store: The training pairs.
        batch_tokens: Most target tokens in a global batch.
        seed: Seed of the order of pairs and of batches.
        weights: How often a pair of each source of the store comes in an epoch; of a source of
            weight 1.25 every pair comes once, and a fourth of them, others in each epoch, twice;
            updates may then be a little larger than ``batch_tokens``. Without weights, once.
        like: A plan of the same pairs in another segmentation. This one has as many updates,
            whatever their size, and takes the same pairs of each source in an epoch.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        *,
        like: "BatchPlan | None" = None,
    ):
        self._src_lengths, self._tgt_lengths = (
            _compact(side.lengths) for side in (store.src, store.tgt)
        )
        self._seed = seed
        # Both sides of a chunk are to be of about one length; padding is the cost otherwise.
        self._longer = np.maximum(self._src_lengths, self._tgt_lengths)
        # The kind of a pair, as keys to sort by. Every epoch puts a pair of the same kind in each
        # place (or, where a source has a fractional weight, of nearly the same), so all cut alike.
        self._kind = [self._tgt_lengths, self._longer]
        self._sizes, self._weights = [len(store)], [1.0]
        if any(weight != 1 for weight in weights):
            self._sizes, self._weights = list(store.sources), list(weights)
            self._kind.append(_compact(np.repeat(np.arange(len(weights)), self._sizes)))
        self._draw = like._drawn if like else self._drawn
        template = self._sorted_by_kind(self._draw(0))
        # Of pairs of one length, those with a long source would else meet in one chunk, and those
        # with a long target in another: at random, every chunk has its mean of both.
        mixed = np.random.default_rng([seed]).permutation(len(template))
        self._places = _compact(mixed[np.argsort(self._longer[template[mixed]], kind="stable")])
        lengths = self._tgt_lengths[template[self._places]]
        self._bounds: Indices = (
            cut_into(lengths, len(like._bounds) - 1)
            if like
            else cut(lengths, max(1, batch_tokens // CHUNKS_PER_BATCH))
        )
        self._epoch = -1
        self._batches: list[Indices] = []
        self._order = template

    @property
    def steps_per_epoch(self) -> int:
        """Updates in an epoch; the same for every epoch."""
        return math.ceil((len(self._bounds) - 1) / CHUNKS_PER_BATCH)

    def __getitem__(self, step: int) -> GlobalBatch:
        """The global batch of an update, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._plan(epoch)
        chunks = tuple(self._chunk(c) for c in self._batches[index])
        return GlobalBatch(chunks, sum(int(self._tgt_lengths[chunk].sum()) for chunk in chunks))

    def _chunk(self, number: int) -> Indices:
        chunk = self._order[self._bounds[number] : self._bounds[number + 1]]
        return chunk[np.argsort(self._tgt_lengths[chunk], kind="stable")].astype(np.int64)

    def _drawn(self, epoch: int) -> npt.NDArray[Any]:
        """The pairs that an epoch has; some more than once."""
        if len(self._weights) == 1 and self._weights[0] == 1:
            return _compact(np.arange(self._sizes[0]))
        drawn, first = [], 0
        by_kind = np.lexsort(self._kind)  # by source, to begin with
        for size, weight in zip(self._sizes, self._weights, strict=True):
            pairs = by_kind[first : first + size]
            whole, part = divmod(weight, 1.0)
            drawn += [pairs] * int(whole)
            if count := round(part * size):
                # One of every size / count neighbours, in each epoch those after the last one's.
                steps = (np.arange(count) + epoch * part % 1.0) * (size / count)
                drawn.append(pairs[np.minimum(steps.astype(np.int64), size - 1)])
            first += size
        if not drawn:
            raise InputError("data.weights leave no pair to train on: give larger ones")
        return _compact(np.concatenate(drawn))

    def _sorted_by_kind(self, pairs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return pairs[np.lexsort([numbers[pairs] for numbers in self._kind])]

    def _plan(self, epoch: int) -> None:
        rng = np.random.default_rng([self._seed, epoch])
        pairs = self._sorted_by_kind(rng.permutation(self._draw(epoch)))
        self._order = pairs[self._places]
        sources = np.add.reduceat(self._src_lengths[self._order], self._bounds[:-1], dtype=np.int64)
        chunks = rng.permutation(len(sources))
        full = len(chunks) // CHUNKS_PER_BATCH
        dealt, rest = np.split(chunks, [full * CHUNKS_PER_BATCH])
        blocks = np.array_split(dealt.reshape(full, CHUNKS_PER_BATCH), max(1, full // _BLOCK))
        batches = [batch for block in blocks for batch in deal(block, sources)]
        if len(rest):
            batches.append(rest)
        self._batches = [batches[b] for b in rng.permutation(len(batches))]
        self._epoch = epoch


def deal_pairs(store: TokenStore, batch: GlobalBatch, count: int) -> list[list[Indices]]:
    """Deals the pairs of an update to ``count`` equal shares.

    Returns:
        Each share's part of every chunk that it has any pair of.
    """
    if count == 1:
        return [list(batch.chunks)]
    pairs = np.concatenate(batch.chunks)
    lengths = np.stack(
        [side.offsets[pairs + 1] - side.offsets[pairs] for side in (store.src, store.tgt)]
    )
    owner = np.empty(len(pairs), np.int64)
    totals = np.zeros((2, count), np.int64)
    longest_first = np.argsort(-lengths.sum(0), kind="stable")
    # In each round all get a pair, of about as many tokens. Of the side that the shares differ in
    # most by now, who has the fewest gets the most.
    for start in range(0, len(pairs), count):
        hand = longest_first[start : start + count]
        side = np.ptp(totals, axis=1).argmax()
        hand = hand[np.argsort(-lengths[side, hand], kind="stable")]
        takers = np.argsort(totals[side], kind="stable")[: len(hand)]
        owner[hand] = takers
        totals[:, takers] += lengths[:, hand]
    owners = np.split(owner, np.cumsum([len(chunk) for chunk in batch.chunks])[:-1])
    return [
        [part for c, o in zip(batch.chunks, owners, strict=True) if len(part := c[o == i])]
        for i in range(count)
    ]


def micro_batches(
    store: TokenStore, batch: GlobalBatch, max_tokens: int, rank: int = 0, world_size: int = 1
) -> list[Batch]:
    """This rank's share of an update, cut so that each part holds at most ``max_tokens`` a side.

    A rank whose share is empty gets one stand-in of weight 0: it must take part in the gradient's
    all-reduce.
    """
    share = deal_pairs(store, batch, world_size)[rank]
    if not share:
        chunk = next(chunk for chunk in batch.chunks if len(chunk))
        return [collate(store, [chunk[:1]], weight=0.0)]
    return [collate(store, groups) for groups in _split(store, share, max_tokens)]


def collate(store: TokenStore, groups: list[Indices], weight: float = 1.0) -> Batch:
    """Reads groups of pairs from the store and packs them."""
    pairs, sizes = np.concatenate(groups), [len(group) for group in groups]
    src, src_lengths = store.src.gather(pairs)
    tgt, tgt_lengths = store.tgt.gather(pairs)
    return Batch(
        src=Packed.bucketed(src, src_lengths, sizes),
        tgt_in=Packed.bucketed(shifted_right(tgt, tgt_lengths), tgt_lengths, sizes),
        tgt_out=torch.from_numpy(tgt.astype(np.int64)),
        weight=weight,
    )


def shifted_right(tokens: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> Indices:
    """What the decoder reads where ``tokens`` is what it is to predict: [N] → [N]."""
    shifted = np.empty(len(tokens), np.int64)
    shifted[1:] = tokens[:-1]
    shifted[np.cumsum(lengths) - lengths] = BOS
    return shifted


def _compact(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers, none negative, in the smallest type: 100 million of them are many bytes.

    Numbers of 16 bits are also sorted several times as fast.
    """
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


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
