"""The plan of a corpus of hundreds of millions of pairs: time, memory and pages, by rank.

The corpus is synthetic: lengths like WMT's, and tokens in sparse files, which take no disk. Its
offsets are real: 16 bytes per pair.
"""

import json
import os
import resource
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


def write_synthetic_store(folder: Path, pairs: int, *, sparse: bool = True) -> None:
    """Writes a token store whose tokens are all 0; sparse, they are holes that take no disk."""
    from transformer_mt.data.store import blocks
    from transformer_mt.data.store.token_store import FORMAT

    folder.mkdir()
    rng = np.random.default_rng(1)
    names = ("src", "tgt")
    writers = {name: blocks.IndexWriter() for name in names}
    files = {name: (folder / f"{name}.offsets").open("wb") for name in names}
    tokens = {name: (folder / f"{name}.tokens").open("wb") for name in names}
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
            if not sparse:
                zeros[: side.sum()].tofile(tokens[name])
            totals[name] = int(offsets[-1])
    for name in names:
        files[name].close()
        tokens[name].truncate(2 * totals[name])
        tokens[name].close()
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


def cold_reads(folder: Path, pairs: int, window_pairs: int) -> Figures:
    """Writes a store in full, and counts what is read from the disk while no page is cached.

    Returns:
        For an update of a window and one of a plan of the whole (as many pairs at random): ``MiB``
        read, the window's own reading included, and page ``faults`` that wait for the disk. And
        the ``seconds`` in which a window is read, verified and planned.
    """
    from transformer_mt.data.batching.windowed_plan import make_plan
    from transformer_mt.data.store.token_store import TokenStore

    write_synthetic_store(folder, pairs, sparse=False)
    store = TokenStore.load(folder)
    plan = make_plan(store, BATCH_TOKENS, seed=1, window_pairs=window_pairs)
    per_window = plan.steps_per_epoch // plan.num_windows
    drop_from_cache(store, folder)
    lap, before = stopwatch(), disk_reads()
    batches = [np.concatenate(batch.chunks) for batch in plan.representative_batches(100)]
    seconds, planned = lap(), disk_reads()
    plan.close()
    rng = np.random.default_rng(1)
    at_random = [rng.integers(0, pairs, len(batch)) for batch in batches[:3]]
    window = read_cold(store, batches)
    drop_from_cache(store, folder)
    whole = read_cold(store, at_random)
    return {
        "seconds": seconds,
        "window MiB": (planned[0] - before[0]) / per_window / 2**20 + window[0],
        "window faults": window[1],
        "whole MiB": whole[0],
        "whole faults": whole[1],
    }


def read_cold(store: Any, batches: list[Any]) -> tuple[float, float]:
    """MiB and page faults of reading each batch from the disk, on average."""
    before = disk_reads()
    for pairs in batches:
        for side in (store.src, store.tgt):
            side.gather(pairs)
    size, faults = (now - then for now, then in zip(disk_reads(), before, strict=True))
    return size / len(batches) / 2**20, faults / len(batches)


def disk_reads() -> tuple[int, int]:
    """Bytes that this process has read from disks, and its page faults that waited for them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"]), resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def drop_from_cache(store: Any, folder: Path) -> None:
    """Drops the files of a store from the page cache."""
    store.unmap()
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def order_of_epochs(pairs: int, window_pairs: int) -> Figures:
    """How random the order of four sources with different lengths is, in memory.

    Returns:
        ``windows``; ``again``: of the pairs of pairs that share an update in the first epoch, the
        share that does so in the second, too; ``mixture``: distance (total variation) between the
        sources' shares of an update and of the corpus, on average.
    """
    from transformer_mt.data.batching.windowed_plan import make_plan
    from transformer_mt.data.store.token_store import Side, TokenStore

    rng = np.random.default_rng(1)
    sizes = [pairs * share // 100 for share in (60, 25, 10, 5)]
    scaled = [
        np.clip(wmt_like_lengths(rng, size) * scale, 2, 256).astype(np.int32)
        for size, scale in zip(sizes, (1, 0.6, 1.5, 0.8), strict=True)
    ]
    src, tgt = (
        Side.from_lengths(np.zeros(n.sum(), np.uint16), n) for n in np.concatenate(scaled, axis=1)
    )
    store = TokenStore(src, tgt, source_sizes=tuple(sizes))
    plan = make_plan(store, BATCH_TOKENS, 1, [1.0] * 4, window_pairs=window_pairs)
    updates = np.empty((2, len(store)), np.int64)
    sources = np.repeat(np.arange(4), sizes)
    distances = []
    for step in range(2 * plan.steps_per_epoch):
        batch = np.concatenate(plan[step].chunks)
        updates[step // plan.steps_per_epoch, batch] = step % plan.steps_per_epoch
        shares = np.bincount(sources[batch], minlength=4) / len(batch)
        distances.append(np.abs(shares - np.array(sizes) / len(store)).sum() / 2)
    plan.close()
    both = updates[0] * plan.steps_per_epoch + updates[1]
    together = [np.unique(ids, return_counts=True)[1] for ids in (updates[0], both)]
    once, twice = (int((counts * (counts - 1) // 2).sum()) for counts in together)
    return {
        "windows": plan.num_windows,
        "again": twice / once,
        "mixture": float(np.mean(distances)),
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
