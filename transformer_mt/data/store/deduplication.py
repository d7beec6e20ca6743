"""Pairs that repeat an earlier one, found by their hashes, over all shards at once."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transformer_mt.config import DataConfig
from transformer_mt.data.cleaning.cleaner import EXAMPLES, CleaningReport
from transformer_mt.data.cleaning.registry import DUPLICATE_KEYS
from transformer_mt.data.store.encode import Shard
from transformer_mt.data.subwords.tokenizer import Tokenizer

_AT_A_TIME = 2**24
"""About as many hashes are sorted at a time: 0.5 GB, whatever the size of the corpus."""

Mask = npt.NDArray[np.bool_]


def drop_repetitions(
    shards: list[Shard], data: DataConfig, tokenizer: Tokenizer, report: CleaningReport
) -> list[Mask]:
    """Which pairs of each shard are kept: the first of all that are the same, in corpus order.

    Args:
        shards: All shards, in order.
        data: Says what counts as the same.
        tokenizer: Spells out the examples of the report.
        report: Gets what is dropped.
    """
    bounds = np.cumsum([0, *(shard.kept for shard in shards)])
    kept = np.ones(bounds[-1], np.bool_)
    spans = [kept[start:end] for start, end in pairwise(bounds)]
    for name in (name for name in DUPLICATE_KEYS if name in report.dropped):  # those that are on
        repeated = _repeated(shards, spans, bounds, name)
        for place in repeated[:EXAMPLES]:
            number = int(np.searchsorted(bounds, place, side="right")) - 1
            shard, i = shards[number], int(place - bounds[number])
            part = shard.part()
            src, tgt = tokenizer.decode([side[i].tolist() for side in (part.src, part.tgt)])
            source = data.train[shard.chunk.source].name
            report.add(name, f"{source}:{part.lines[i]}", src, tgt)
        report.dropped[name] += len(repeated[EXAMPLES:])
        kept[repeated] = False
    return spans


def _repeated(
    shards: list[Shard], spans: list[Mask], bounds: npt.NDArray[np.int64], name: str
) -> npt.NDArray[np.int64]:
    """Places of pairs, of those still kept, whose hash an earlier one has."""
    parts = 1 + int(bounds[-1]) // _AT_A_TIME
    repeated = []
    for part in range(parts):  # hashes that are the same are in the same part
        places, hashes = [], []
        for shard, span, start in zip(shards, spans, bounds, strict=False):
            column = shard.column(name)
            inside = np.flatnonzero(span & (column % np.uint64(parts) == part))
            places.append(start + inside)
            hashes.append(column[inside])
        repeated.append(np.concatenate(places)[~first_occurrences(np.concatenate(hashes))])
    return np.sort(np.concatenate(repeated))


def first_occurrences(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """[n] whether each hash is the first of its value; needs 2.5 times the memory of ``hashes``."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    new = np.ones(len(hashes), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.empty_like(new)
    first[order] = new
    return first
