"""The plan of a corpus of hundreds of millions of pairs: time, memory and pages, by rank.

The corpus is synthetic: lengths like WMT's, and tokens in sparse files, which take no disk. Its
offsets are real: 16 bytes a pair.
"""

import json
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from data_peers import BATCH_TOKENS, Figures

RANKS = 1, 8
"""Ranks of one machine, each of which plans for itself."""

_PART_PAIRS = 2**20
_PAGE_BYTES = 4096


def wmt_like_lengths(rng: np.random.Generator, pairs: int) -> Any:
    """[2, pairs] numbers of source and target tokens."""
    src = np.exp(rng.normal(3.2, 0.6, pairs))
    tgt = src * np.exp(rng.normal(0.05, 0.2, pairs))
    return np.clip(np.stack([src, tgt]).astype(np.int64), 2, 256)


def write_synthetic_store(folder: Path, pairs: int) -> None:
    """Writes a token store whose tokens are holes of sparse files: all are 0."""
    from transformer_mt.data.store import blocks
    from transformer_mt.data.store.token_store import FORMAT

    folder.mkdir()
    rng = np.random.default_rng(1)
    names = ("src", "tgt")
    writers = {name: blocks.IndexWriter() for name in names}
    files = {name: (folder / f"{name}.offsets").open("wb") for name in names}
    totals = dict.fromkeys(names, 0)
    zeros = np.zeros(256 * _PART_PAIRS, np.uint16)
    for file in files.values():
        np.zeros(1, np.int64).tofile(file)
    for start in range(0, pairs, _PART_PAIRS):
        lengths = wmt_like_lengths(rng, min(_PART_PAIRS, pairs - start))
        for name, side in zip(names, lengths, strict=True):
            offsets = np.cumsum(np.concatenate([[totals[name]], side]))
            offsets[1:].tofile(files[name])
            writers[name].append(zeros[: side.sum()], offsets)
            totals[name] = int(offsets[-1])
    for name in names:
        files[name].close()
        with (folder / f"{name}.tokens").open("wb") as tokens:
            tokens.truncate(2 * totals[name])
        writers[name].index().tofile(folder / f"{name}.index")
    (folder / "lines").touch()
    meta = {
        "format": FORMAT,
        "dtype": "uint16",
        "pairs": pairs,
        "tokens": totals,
        "longest": 256,
        "sources": [pairs],
        "names": ["synthetic"],
        "lines": 0,
        "block_pairs": blocks.BLOCK_PAIRS,
        "sha256": "synthetic",
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def plan_windows(
    folder: Path, window_pairs: int, updates: int, epoch: int, barrier: Barrier
) -> Figures:
    """Opens, finds a step in the middle of an epoch, and reads updates of its window and the next.

    The ranks wait for each other at every update, as training makes them do.
    """
    from transformer_mt.data.batching.windowed_plan import make_plan
    from transformer_mt.data.store.token_store import TokenStore

    lap = stopwatch()
    store = TokenStore.load(folder)
    shared = barrier.parties > 1
    plan = make_plan(store, BATCH_TOKENS, seed=1, window_pairs=window_pairs, shared=shared)
    figures: Figures = {"open": lap(), "steps": plan.steps_per_epoch, "windows": plan.num_windows}
    per_window = plan.steps_per_epoch // plan.num_windows
    updates = min(updates, per_window)
    window = epoch * plan.num_windows + plan.num_windows // 2
    steps = [(window + 1) * per_window + i for i in range(-updates, updates)]
    plan[steps[0]]
    figures["seek"] = lap()
    waits = []
    for step in steps:
        barrier.wait()
        lap()
        batch = plan[step]
        waits.append(lap())
        pairs = np.concatenate(batch.chunks)
        for side in (store.src, store.tgt):
            side.gather(pairs)
    plan.close()
    return {**figures, "longest_wait": max(waits), "wait": sum(waits)}


def plan_pages(folder: Path, pairs: int, window_pairs: int) -> Figures:
    """Writes a store, and counts the pages that updates of a window of its plan touch.

    Returns:
        ``pages`` of an update, and how many of them are ``new``, not touched by an earlier update
        of the window; ``random``: pages of as many pairs at random, as in a plan of the whole.
    """
    from transformer_mt.data.batching.windowed_plan import make_plan
    from transformer_mt.data.store.token_store import TokenStore

    write_synthetic_store(folder, pairs)
    store = TokenStore.load(folder)
    plan = make_plan(store, BATCH_TOKENS, seed=1, window_pairs=window_pairs)
    per_window = plan.steps_per_epoch // plan.num_windows
    updates = [np.concatenate(plan[step].chunks) for step in range(per_window)]
    plan.close()
    some = updates[:: per_window // 100 + 1]
    rng = np.random.default_rng(1)
    at_random = [rng.integers(0, pairs, len(update)) for update in some]
    return {
        "pages": float(np.mean([num_pages(store, update) for update in some])),
        "new": num_pages(store, np.concatenate(updates)) / per_window,
        "random": float(np.mean([num_pages(store, update) for update in at_random])),
    }


def stopwatch() -> Callable[[], float]:
    """A function that returns the seconds since its last call."""
    last = time.perf_counter()

    def lap() -> float:
        nonlocal last
        now = time.perf_counter()
        seconds, last = now - last, now
        return seconds

    return lap


def num_pages(store: Any, pairs: Any) -> int:
    """Number of pages, over the files of both sides, that reading these pairs touches."""
    total = 0
    for side in (store.src, store.tgt):
        for begin, end, size in (
            (side.offsets[pairs], side.offsets[pairs + 1] - 1, side.tokens.itemsize),
            (pairs, pairs + 1, side.offsets.itemsize),
        ):
            # A pair's bytes are fewer than those of a page: they lie in one page or two.
            pages = np.concatenate([begin * size // _PAGE_BYTES, end * size // _PAGE_BYTES])
            total += len(np.unique(pages))
    return total
