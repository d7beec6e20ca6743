"""Sufficient statistics of metrics: counts for each segment, from which everything is computed.

Scores of a test set and of parts of it, confidence intervals and significance tests are functions
of sums of these counts. Extracting them takes nearly all the time of an evaluation, TER's above
all, so it is done once, by worker processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from sacrebleu.metrics.base import Metric, Score

from transformer_mt.evaluation.metrics import make_metric
from transformer_mt.evaluation.parallel import run_jobs

Row = list[float]

_SEGMENTS = 20
"""Segments of a job, small enough that all workers finish at about the same time."""
_SECONDS_PER_COMPARISON = 2e-3
"""Typical time to compare a hypothesis with a reference by all default metrics."""


@dataclass(frozen=True)
class Statistics:
    """Sufficient statistics of one system by one metric."""

    name: str
    """Name of the metric, for ``make_metric``."""
    tgt_lang: str | None
    num_refs: int
    rows: list[Row]
    """Counts of every segment."""

    @property
    def metric(self) -> Metric:
        """The metric, whose signature includes the number of references."""
        return _metric(self.name, self.tgt_lang, self.num_refs)

    # Metric's private methods are the steps of its corpus_score, which sacreBLEU's own tests use.

    def corpus_score(self) -> Score:
        """SacreBLEU's score of the test set."""
        return self.metric._aggregate_and_compute(self.rows)

    def score(self, lines: Sequence[int]) -> float:
        """Corpus score of the segments with these indices."""
        result = self.metric._aggregate_and_compute([self.rows[i] for i in lines])
        return float(result.score)

    def score_of_sums(self, sums: Any) -> float:
        """Score of sums of rows: an array [K]."""
        return self.metric._compute_score_from_stats(sums).score


def collect(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    tgt_lang: str | None = None,
    workers: int | None = 0,
) -> dict[str, dict[str, Statistics]]:
    """Extract the statistics by system and by metric.

    Args:
        systems: Hypotheses by the system's name.
        references: One list per reference set.
        metrics: Names for ``make_metric``.
        tgt_lang: Language code; see ``make_metric``.
        workers: Worker processes; see ``run_jobs``.

    Raises:
        InputError: A metric is not available, or a worker process was killed.
    """
    for name in metrics:
        make_metric(name, tgt_lang)  # before any work
    segments = len(references[0])
    jobs = []
    for name in metrics:
        for start in range(0, segments, _SEGMENTS):
            part = slice(start, start + _SEGMENTS)
            texts = [lines[part] for lines in systems.values()], [of[part] for of in references]
            jobs.append((name, partial(_extract, name, tgt_lang, *texts)))
    found = {
        system: {name: Statistics(name, tgt_lang, len(references), []) for name in metrics}
        for system in systems
    }
    seconds = segments * len(systems) * len(references) * _SECONDS_PER_COMPARISON
    results = run_jobs([job for _, job in jobs], workers=workers, seconds=seconds)
    for (name, _), result in zip(jobs, results, strict=True):
        for of_system, rows in zip(found.values(), result, strict=True):
            of_system[name].rows.extend(rows)
    return found


def _extract(
    name: str,
    tgt_lang: str | None,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> list[list[Row]]:
    """Rows of every system for some segments; the references are prepared only once."""
    metric = _metric(name, tgt_lang, len(references))
    metric._ref_cache = metric._cache_references(references)
    return [metric._extract_corpus_statistics(lines, None) for lines in systems]


@cache
def _metric(name: str, tgt_lang: str | None, num_refs: int) -> Metric:
    metric = make_metric(name, tgt_lang)
    metric.num_refs = num_refs
    return metric
