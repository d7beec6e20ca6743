"""Resampling of test sets: bootstrap and approximate randomisation, with sacreBLEU's numbers.

The random numbers, sums and scores are those of sacreBLEU's ``--paired-bs`` and ``--paired-ar``
(``sacrebleu.significance``), so the results are equal to the digit. sacreBLEU itself extracts the
statistics of a system again for every test, and holds all resamples in memory.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.significance import estimate_ci

from transformer_mt.errors import InputError
from transformer_mt.evaluation.parallel import run_jobs
from transformer_mt.evaluation.statistics import Statistics

Scores = npt.NDArray[np.floating[Any]]

_TRIALS = 32
"""Trials drawn at a time. NumPy draws 32 booleans from each random number, so a multiple of 32
gives the same trials as drawing all of them at once."""
_SECONDS_PER_SCORE = 3e-5
"""Typical time to compute a score from sums of counts."""


@dataclass(frozen=True)
class Resamples:
    """Results of the resampling, by name of the system and of the metric."""

    scores: Mapping[tuple[str, str], Scores]
    """Scores of the bootstrap resamples; the same segments for every system. May be empty."""
    p_randomization: Mapping[tuple[str, str], float]
    """p-values of the randomisation test against the first system. May be empty."""


def seed_text() -> str:
    """SacreBLEU's seed: 12345, or the environment variable ``SACREBLEU_SEED``."""
    return os.environ.get("SACREBLEU_SEED", "12345").lower()


def resample(
    statistics: Mapping[str, Mapping[str, Statistics]],
    *,
    bootstrap: int,
    randomization: int,
    compared: Sequence[str],
    workers: int | None,
) -> Resamples:
    """Resample every system, and test every other system against the first.

    Args:
        statistics: Statistics by system and by metric, the baseline first.
        bootstrap: Resamples of the bootstrap; 0 skips it.
        randomization: Trials of the randomisation test; 0 skips it.
        compared: Names of the metrics of the randomisation test.
        workers: Worker processes; see ``run_jobs``.
    """
    seed = _seed()
    first, *others = statistics
    scores: dict[tuple[str, str], Callable[[], Scores]] = {}
    if bootstrap:
        for system, of_system in statistics.items():
            for name, rows in of_system.items():
                scores[system, name] = partial(bootstrap_scores, rows, bootstrap, seed)
    tests: dict[tuple[str, str], Callable[[], float]] = {}
    if randomization:
        for system in others:
            for name in compared:
                pair = statistics[first][name], statistics[system][name]
                tests[system, name] = partial(randomization_p_value, *pair, randomization, seed)
    computed = len(scores) * bootstrap + 2 * len(tests) * randomization
    jobs: list[Callable[[], Any]] = [*tests.values(), *scores.values()]
    found = list(run_jobs(jobs, workers=workers, seconds=computed * _SECONDS_PER_SCORE))
    return Resamples(
        scores=dict(zip(scores, found[len(tests) :], strict=True)),
        p_randomization=dict(zip(tests, found[: len(tests)], strict=True)),
    )


def bootstrap_scores(statistics: Statistics, resamples: int, seed: int) -> Scores:
    """[resamples] scores of segments drawn with replacement."""
    rng = np.random.default_rng(seed)
    rows = np.array(statistics.rows, np.float32)  # sums of counts are exact up to 2^24
    draws = (rng.choice(len(rows), len(rows)) for _ in range(resamples))
    return np.array([statistics.score_of_sums(rows[draw].sum(0)) for draw in draws])


def bootstrap_p_value(baseline: Scores, scores: Scores, difference: float) -> float:
    """p-value of the paired bootstrap test for the observed difference of the scores."""
    differences = np.abs(scores - baseline)
    return _p_value(differences - differences.mean(), difference)


def randomization_p_value(
    baseline: Statistics, system: Statistics, trials: int, seed: int
) -> float:
    """p-value of the paired approximate randomisation test.

    Each trial exchanges the two systems' outputs for about half of the segments.
    """
    rng = np.random.default_rng(seed)
    ours, theirs = (np.array(of.rows, np.float64) for of in (system, baseline))
    differences = []
    for start in range(0, trials, _TRIALS):
        size = (min(_TRIALS, trials - start), len(ours))
        keep = rng.integers(2, size=size, dtype=bool).astype(np.float64)
        swap = 1 - keep
        pairs = zip(keep @ theirs + swap @ ours, swap @ theirs + keep @ ours, strict=True)
        differences += [baseline.score_of_sums(a) - baseline.score_of_sums(b) for a, b in pairs]
    observed = abs(baseline.corpus_score().score - system.corpus_score().score)
    return _p_value(np.abs(differences), observed)


def interval(scores: Scores) -> tuple[float, float]:
    """Mean of the resamples, and half the width of the 95% interval."""
    mean, half = estimate_ci(scores)
    return float(mean), float(half)


def _p_value(differences: npt.NDArray[Any], observed: float) -> float:
    """sacreBLEU's: one more in both counts, so that p is never 0."""
    return float((np.sum(differences > observed) + 1) / (len(differences) + 1))


def _seed() -> int:
    text = seed_text()
    if text == "none":  # one for all systems: the tests are paired
        return int(np.random.default_rng().integers(2**32))
    try:
        return int(text)
    except ValueError:
        raise InputError(f"SACREBLEU_SEED={text} is neither a number nor none") from None
