"""This rank's share of a global batch → micro-batches that fit the memory of its device."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.batch import Batch, Packed
from transformer_mt.data.batching.plan import GlobalBatch, Indices
from transformer_mt.data.store.token_store import TokenStore
from transformer_mt.data.subwords.tokenizer import BOS


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
