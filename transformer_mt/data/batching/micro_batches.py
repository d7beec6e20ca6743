"""Micro-batches: one rank's share of a global batch, in parts that fit the device's memory."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from transformer_mt.batch import (
    IGNORE_INDEX,
    Batch,
    Boundaries,
    Buckets,
    Lengths,
    Packed,
    TokenArray,
)
from transformer_mt.data.batching.plan import GlobalBatch
from transformer_mt.data.store.token_store import Indices, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS

_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Lengths of sequences in attention; longer ones are multiples of the last. With AVX-512, the
softmax of fewer than 16 keys takes several times as long as that of 16."""

_BUCKET_COST = 5000
"""Pairs of positions whose attention costs as much as the kernels of one more bucket."""


def split_batch(batch: GlobalBatch, num_shares: int) -> list[Indices]:
    """Splits a global batch into shares with similar numbers of tokens, some perhaps empty."""
    pairs = np.concatenate(batch.chunks)
    if num_shares == 1:
        return [pairs]
    lengths = batch.store.pair_lengths(pairs)
    owners = [0] * len(pairs)
    longest_first = np.argsort(-lengths.sum(0), kind="stable").tolist()
    # In each round every share gets a pair, all of similar length. On the side on which the shares
    # differ most so far, the share with the fewest tokens gets the longest sequence. Lists, because
    # a round is too small for NumPy.
    sides, totals = lengths.tolist(), [[0] * num_shares, [0] * num_shares]
    for start in range(0, len(pairs), num_shares):
        side = max((0, 1), key=lambda i: max(totals[i]) - min(totals[i]))
        candidates = longest_first[start : start + num_shares]
        candidates.sort(key=sides[side].__getitem__, reverse=True)
        shares = sorted(range(num_shares), key=totals[side].__getitem__)
        for pair, share in zip(candidates, shares, strict=False):
            owners[pair] = share
            totals[0][share] += sides[0][pair]
            totals[1][share] += sides[1][pair]
    return [pairs[np.array(owners) == share] for share in range(num_shares)]


def micro_batches(
    batch: GlobalBatch, max_tokens: int, rank: int = 0, world_size: int = 1
) -> list[Batch]:
    """One rank's share of a global batch, in parts of at most ``max_tokens`` tokens per side.

    A rank with an empty share gets a placeholder batch, whose targets the loss ignores, because it
    must take part in the gradient's all-reduce.

    Args:
        batch: The global batch.
        max_tokens: Maximum number of tokens of either side in a part.
        rank: Number of the rank.
        world_size: Number of ranks.
    """
    pairs = split_batch(batch, world_size)[rank]
    if not len(pairs):
        placeholder = collate(batch.store, np.zeros(1, np.int64))
        placeholder.tgt_out.fill_(IGNORE_INDEX)
        return [placeholder]
    starts, used = list[int](), np.zeros(2, np.int64)
    for i, lengths in enumerate(batch.store.pair_lengths(pairs).T):
        used += lengths
        if i and used.max() > max_tokens:
            starts.append(i)
            used = lengths.copy()
    return [collate(batch.store, part) for part in np.split(pairs, starts)]


def collate(store: TokenStore, pairs: Indices) -> Batch:
    """Reads pairs from the store and packs them in buckets of similar length.

    Rows of flat tensors and buckets are padded to shapes of a coarse grid; the loss and attention
    ignore the padding. On a CPU every new shape costs time: oneDNN generates code for a 16-bit
    product of each new shape and keeps 1,024 of them, and blocks of memory whose sizes never repeat
    fragment the heap, so that a run gets slower and its memory grows.
    """
    lengths = padded_lengths(store.pair_lengths(pairs).max(axis=0))
    pairs = pairs[np.argsort(lengths, kind="stable")]
    longest, counts = np.unique(lengths, return_counts=True)
    sizes, sequences = counts.tolist(), padded_sizes(counts, steps=4).tolist()
    # Both sides have the same shapes, so that self-attention and cross-attention share them.
    shapes = list(zip(sequences, longest.tolist(), strict=True))
    src, tgt = store.src.gather(pairs), store.tgt.gather(pairs)
    rows = padded_sizes(np.array([len(src[0]), len(tgt[0])]), steps=16).tolist()
    return pack_pairs(
        src,
        tgt,
        Buckets.from_lengths(src[1], sizes, shapes, rows[0]),
        Buckets.from_lengths(tgt[1], sizes, shapes, rows[1]),
        rows,
    )


def pack_pairs(
    src: tuple[TokenArray, Lengths],
    tgt: tuple[TokenArray, Lengths],
    src_boundaries: Boundaries,
    tgt_boundaries: Boundaries,
    num_rows: Sequence[int],
) -> Batch:
    """Packs both sides of pairs, each given by tokens end to end and lengths (``Side.gather``).

    The decoder reads the target sequences shifted right behind the start symbol (§3.1).

    Args:
        src: Source tokens and lengths.
        tgt: Target tokens, each sequence ending with the end symbol, and lengths.
        src_boundaries: Boundaries of the source sequences.
        tgt_boundaries: Boundaries of the target sequences.
        num_rows: Number of rows of each side; those after the tokens are padding.
    """
    tokens, lengths = tgt
    tgt_in = np.empty_like(tokens)
    tgt_in[1:] = tokens[:-1]
    tgt_in[np.cumsum(lengths) - lengths] = BOS
    tgt_out = np.full(num_rows[1], IGNORE_INDEX, np.int64)
    tgt_out[: len(tokens)] = tokens
    return Batch(
        src=Packed.from_flat(*src, src_boundaries, num_rows[0]),
        tgt_in=Packed.from_flat(tgt_in, lengths, tgt_boundaries, num_rows[1]),
        tgt_out=torch.from_numpy(tgt_out),
    )


def padded_sizes(sizes: Lengths, steps: int) -> npt.NDArray[np.int64]:
    """The next larger numbers on a grid with ``steps`` of them from each power of two to the next.

    Args:
        sizes: Any shape; numbers of rows of flat tensors, or of sequences of a bucket.
        steps: With 16 the padding is about 3%.

    Returns:
        The same shape, each at least one more.
    """
    _, bits = np.frexp(sizes)
    unit = np.maximum(1, 2**bits // (2 * steps))
    return (sizes // unit + 1) * unit


def padded_lengths(lengths: Lengths) -> npt.NDArray[np.int64]:
    """The padded length of each sequence, such that few different ones occur.

    Args:
        lengths: [sequences] numbers of tokens.

    Returns:
        [sequences], each at least as long.
    """
    last = _LENGTHS[-1]
    grid = np.array([*_LENGTHS, *range(2 * last, int(lengths.max(initial=0)) + last, last)])
    level = np.searchsorted(grid, lengths)
    counts = np.bincount(level, minlength=len(grid))
    # A few sequences join the next longer ones: their padding costs less than one more bucket.
    target = np.arange(len(grid))
    for i, (length, longer) in enumerate(pairwise(grid.tolist())):
        if counts[i] * (longer**2 - length**2) < _BUCKET_COST and counts[i + 1 :].any():
            counts[i + 1] += counts[i]
            target[target == i] = i + 1
    return grid[target[level]]
