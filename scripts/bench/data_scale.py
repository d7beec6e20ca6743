"""The plan of a corpus of hundreds of millions of pairs: time and memory, by rank.

The corpus is synthetic: lengths like WMT's, and tokens in sparse files, which take no disk. Its
offsets are real: 16 bytes per pair.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from data_peers import BATCH_TOKENS, Figures

RANKS = 1, 8
"""Ranks of one machine, each of which plans for itself."""


def wmt_like_lengths(rng: np.random.Generator, pairs: int) -> Any:
    """[2, pairs] numbers of source and target tokens."""
    src = np.exp(rng.normal(3.2, 0.6, pairs))
    tgt = src * np.exp(rng.normal(0.05, 0.2, pairs))
    return np.clip(np.stack([src, tgt]).astype(np.int64), 2, 256)


def write_synthetic_corpus(folder: Path, pairs: int, num_shards: int) -> None:
    """Writes a corpus whose tokens are all 0 and are holes in files, which take no disk."""
    from transformer_mt.data.store.token_store import FORMAT

    folder.mkdir()
    rng = np.random.default_rng(1)
    zeros = np.zeros(2**20, np.uint16)
    for number in range(num_shards):
        size = pairs * (number + 1) // num_shards - pairs * number // num_shards
        shard = folder / f"shard-{number + 1:05}-of-{num_shards:05}"
        shard.mkdir()
        tokens, digests = {}, b""
        for name, lengths in zip(("src", "tgt"), wmt_like_lengths(rng, size), strict=True):
            offsets = np.zeros(size + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            offsets.tofile(shard / f"{name}.offsets")
            tokens[name] = int(offsets[-1])
            with (shard / f"{name}.tokens").open("wb") as file:
                file.truncate(2 * tokens[name])
            checksum = hashlib.sha256()
            for start in range(0, tokens[name], len(zeros)):
                checksum.update(zeros[: tokens[name] - start].data)
            digests += checksum.digest() + hashlib.sha256(offsets.data).digest()
        meta = {
            "format": FORMAT,
            "dtype": "uint16",
            "tokens": tokens,
            "longest": 256,
            "sources": [size],
            "sha256": hashlib.sha256(digests).hexdigest(),
        }
        (shard / "meta.json").write_text(json.dumps(meta))


def plan_shards(folder: Path, updates: int, epoch: int, barrier: Barrier) -> Figures:
    """Opens, finds a step in the middle of an epoch, and reads updates of its shard and the next.

    The ranks wait for each other at every update, as training makes them do.
    """
    from transformer_mt.data.batching.sharded_plan import ShardedPlan
    from transformer_mt.data.store.token_store import Corpus

    memory, lap = PeakOfProcess(), stopwatch()
    corpus = Corpus.load(folder)
    plan = ShardedPlan(corpus, BATCH_TOKENS, seed=1)
    figures: Figures = {"open": lap(), "steps": plan.steps_per_epoch, "shards": len(corpus.shards)}
    middle = epoch * plan.steps_per_epoch + plan.steps_per_epoch // 2
    plan[middle]
    figures["seek"] = lap()
    plan = ShardedPlan(corpus, BATCH_TOKENS, seed=1)
    lap()
    plan[middle]
    figures["warm_seek"] = lap()
    first = plan[middle].store.folder
    while plan[middle].store.folder == first:  # the first update of the next shard
        middle += 1
    waits = []
    for step in range(middle - updates, middle + updates):
        barrier.wait()
        lap()
        batch = plan[step]
        waits.append(lap())
        pairs = np.concatenate(batch.chunks)
        for side in (batch.store.src, batch.store.tgt):
            side.gather(pairs)
    return {**figures, "longest_wait": max(waits), "wait": sum(waits), **memory.stop()}


class PeakOfProcess:
    """Peak memory of this process above the present level, sampled every 20 ms."""

    def __init__(self) -> None:
        self._before, self._peak = self._now(), {"RssAnon": 0, "VmRSS": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Figures:
        """Bytes of anonymous memory (``anonymous``), and with mapped files (``resident``)."""
        self._over.set()
        self._thread.join()
        names = {"RssAnon": "anonymous", "VmRSS": "resident"}
        return {name: self._peak[key] - self._before[key] for key, name in names.items()}

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            now = self._now()
            self._peak = {key: max(peak, now[key]) for key, peak in self._peak.items()}

    @staticmethod
    def _now() -> dict[str, int]:
        status = Path("/proc/self/status").read_text()
        return {key: int(kb) << 10 for key, kb in re.findall(r"(RssAnon|VmRSS):\s+(\d+)", status)}


def stopwatch() -> Callable[[], float]:
    """A function that returns the seconds since its last call."""
    last = time.perf_counter()

    def lap() -> float:
        nonlocal last
        now = time.perf_counter()
        seconds, last = now - last, now
        return seconds

    return lap
