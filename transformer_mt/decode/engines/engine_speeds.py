"""Speeds of engines with a model on this machine: measured, and kept in the cache."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_mt import files
from transformer_mt.config import TrainJob
from transformer_mt.decode.engines.engine import Engine, EngineChoice

Speeds = dict[EngineChoice, float]
"""Tokens of translations per second."""

_MAX_SECONDS = 2.0
_MAX_SHARE = 0.1
"""Of the estimated time of the whole search."""
_MIN_SECONDS = 0.02
"""A shorter run is too noisy to compare engines."""
_SENTENCES_PER_THREAD = 32
_GROWTH = (1.5, 4.0)
"""Least and largest ratio of the work of two successive rounds."""
_MIN_RELATIVE_SPEED = 0.5
"""An engine with a smaller share of the highest speed is not timed further."""


def measure(
    engines: Mapping[EngineChoice, Engine], sources: Sequence[list[int]], threads: int
) -> Speeds:
    """Times engines on some of the sentences to translate, cut to their first tokens.

    The speed of an engine depends on how many sentences it translates at a time: as many are timed
    as in a large job, and translations end after as many tokens as their sources have. Each round
    has longer sentences. Before the first, each engine translates one sentence, untimed, to load
    libraries and weights. Another round begins only if it should end within 2 seconds of the start
    and within a tenth of the estimated time of all sentences. The last round decides.

    Returns:
        The speed of each engine; empty if there was too little time to tell.
    """
    upper_half = sorted(sources, key=len)[len(sources) // 2 :]
    sample = upper_half[: _SENTENCES_PER_THREAD * threads]
    number, num_tokens = len(sample), sum(len(ids) + 1 for ids in sources)
    _time(engines, sample[:1], 1)
    start, length = time.perf_counter(), 1
    speeds: Speeds = {}
    while True:
        seconds = _time(engines, sample, length)
        latest = {choice: number * (length + 1) / each for choice, each in seconds.items()}
        speeds |= latest
        best = max(latest.values())
        engines = {
            c: engine for c, engine in engines.items() if latest[c] >= _MIN_RELATIVE_SPEED * best
        }
        left = min(_MAX_SECONDS, _MAX_SHARE * num_tokens / best) - (time.perf_counter() - start)
        growth = min(_GROWTH[1], left / sum(seconds[choice] for choice in engines))
        longer = min(int((length + 1) * growth) - 1, len(sample[0]))
        if growth < _GROWTH[0] or longer <= length or len(engines) == 1:
            return speeds if min(seconds.values()) >= _MIN_SECONDS else {}
        length = longer


def _time(
    engines: Mapping[EngineChoice, Engine], sources: Sequence[list[int]], length: int
) -> dict[EngineChoice, float]:
    """Seconds that each engine takes for the first ``length`` tokens of these sentences."""
    seconds = {}
    for choice, engine in engines.items():
        start = time.perf_counter()
        engine.benchmark([ids[:length] for ids in sources], length)
        seconds[choice] = time.perf_counter() - start
    return seconds


def read(conditions: Mapping[str, Any]) -> Speeds:
    """The speeds that ``write`` has kept; empty if there are none."""
    try:
        found = json.loads(_path(conditions).read_text(encoding="utf-8"))
        rows = found["speeds"] if found["conditions"] == conditions else []
        return {
            EngineChoice(row["engine"], row["compute_type"]): float(row["tokens_per_second"])
            for row in rows
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def write(conditions: Mapping[str, Any], speeds: Speeds) -> Path:
    """Keeps speeds measured under these conditions (JSON values); returns the file.

    Raises:
        OSError: The cache cannot be written.
    """
    rows = [
        {"engine": c.engine, "compute_type": c.compute_type, "tokens_per_second": round(speed, 1)}
        for c, speed in speeds.items()
    ]
    path = _path(conditions)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps({"conditions": conditions, "speeds": rows}, indent=1))
    return path


def _path(conditions: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
    return files.expand_user(TrainJob.cache_dir) / "engine_speeds" / f"{digest[:16]}.json"
