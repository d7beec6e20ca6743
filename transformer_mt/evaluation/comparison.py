"""Evaluation of one or several systems on one test set, each compared with the first."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.significance import PairedTest

from transformer_mt.data.store.workers import map_ordered
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.files import testset_files
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.score_diagnostics import diagnose
from transformer_mt.evaluation.scores import Score, check_line_counts, compute_score
from transformer_mt.kernels.hardware import available_cores

SIGNIFICANT = 0.05
"""Differences with p-values below this are marked as significant."""
_WORTH_WORKERS = 500
"""Lines for which resampling takes longer than starting worker processes, about a second."""


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """Line-aligned texts that translations are scored against."""

    __test__ = False  # not a test case for pytest

    references: Mapping[str, Sequence[str]]
    """Reference translations by the name of their file."""
    source: Sequence[str] | None = None
    """Sentences to translate, if known."""
    source_name: str = "the source"
    """Name of the source in error messages."""

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """All texts by name."""
        source = {} if self.source is None else {self.source_name: self.source}
        return {**self.references, **source}


def load_testset(name: str, langs: str) -> TestSet:
    """A sacreBLEU test set, downloaded if necessary; see ``testset_files``."""
    source, references = testset_files(name, langs)
    return TestSet(
        references={path.name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
        source_name=source.name,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Metrics and tests to compute: the settings of ``mt-eval`` of the same names."""

    metrics: Sequence[str] = metrics.DEFAULT
    protocols: Sequence[str] | None = None
    tgt_lang: str | None = None
    normalization: str = "none"
    """``data.normalization`` of the system; ``none`` if unknown."""
    bootstrap: int = 0
    randomization: int = 0
    workers: int | None = None

    @property
    def names(self) -> list[str]:
        """Names of all metrics and protocols, for ``make_metric``."""
        protocols = self.protocols
        if protocols is None:
            protocols = metrics.default_protocols(self.tgt_lang, self.normalization)
        return [*self.metrics, *protocols]


@dataclass(frozen=True, kw_only=True)
class System:
    """One system's translations with their scores."""

    name: str
    """Shortest end of its path that no other system has."""
    hypotheses: Sequence[str]
    scores: list[Score]
    diagnostics: list[str]
    """Warnings about the scores; see ``score_diagnostics``."""


@dataclass(frozen=True)
class Comparison:
    """One system compared with the baseline by one metric."""

    system: str
    metric: str
    """Name of the score: ``BLEU``, ``chrF2``, ``TER``."""
    difference: float
    """Score of the system minus that of the baseline."""
    p_bootstrap: float | None
    """p-value of the paired bootstrap test: the probability of a difference this large if both
    systems were equally good. None if the test was not run."""
    p_randomization: float | None
    """p-value of the paired approximate randomisation test; None if it was not run."""

    @property
    def is_significant(self) -> bool:
        """Whether all tests that were run find the difference significant."""
        p_values = [p for p in (self.p_bootstrap, self.p_randomization) if p is not None]
        return bool(p_values) and all(p < SIGNIFICANT for p in p_values)


class _Test(NamedTuple):
    """Outcome of one of sacreBLEU's paired tests by one metric."""

    signature: str
    """Signature of the scores, with the settings of the test."""
    results: Sequence[Any]
    """sacreBLEU's ``Result`` for every system."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Results of all systems on one test set; the first system is the baseline."""

    systems: list[System]
    test: TestSet
    comparisons: list[Comparison]
    settings: Settings


def evaluate_systems(
    systems: Mapping[str, Sequence[str]], test: TestSet, settings: Settings
) -> Evaluation:
    """Scores of every system, given by the path of its file or model, and comparisons.

    Raises:
        InputError: The numbers of lines differ, there is nothing to score, a metric is not
            available here, or a worker process was killed.
    """
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.texts})
    sets = list(test.references.values())
    named = list(zip(short_names(list(systems)), systems.values(), strict=True))
    names, language = settings.names, settings.tgt_lang
    jobs: dict[tuple[str, str], Callable[[], Any]] = {}
    for name in reversed(names):  # TER, by far the slowest, is usually the last
        tests = {"bs": settings.bootstrap}
        if len(named) > 1 and name in settings.metrics:
            tests["ar"] = settings.randomization
        for kind, samples in tests.items():
            if samples:
                job = partial(_paired_test, kind, samples, name, language, named, sets)
                jobs[kind, name] = job
    workers = settings.workers
    if workers is None:
        workers = available_cores() if jobs and len(sets[0]) >= _WORTH_WORKERS else 0
    for system, hypotheses in named:
        for name in names:
            jobs[f"score of {system}", name] = partial(
                compute_score, name, language, hypotheses, sets
            )
    computed = map_ordered(operator.call, jobs.values(), workers, setting="workers")
    results = dict(zip(jobs, computed, strict=True))
    words = not {"bleu", "ter"}.isdisjoint(settings.metrics)
    evaluated = [
        System(
            name=system,
            hypotheses=hypotheses,
            scores=[
                _with_interval(results[f"score of {system}", name], i, results.get(("bs", name)))
                for name in names
            ],
            diagnostics=diagnose(hypotheses, sets, test.source, tgt_lang=language, words=words),
        )
        for i, (system, hypotheses) in enumerate(named)
    ]
    comparisons = [
        _compare(evaluated, i, j, results.get(("bs", name)), results.get(("ar", name)))
        for i in range(1, len(named))
        for j, name in enumerate(settings.metrics)
        if settings.bootstrap or settings.randomization
    ]
    return Evaluation(systems=evaluated, test=test, comparisons=comparisons, settings=settings)


def _paired_test(
    kind: str,
    samples: int,
    metric: str,
    tgt_lang: str | None,
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
) -> _Test:
    """A paired test of every system against the first, by bootstrap or randomisation.

    The bootstrap also gives intervals, and so is of use for a single system.

    Args:
        kind: ``bs`` or ``ar``.
        samples: Resamples or trials.
        metric: Name for ``make_metric``.
        tgt_lang: Language of the systems' lines.
        systems: Names and lines.
        references: One list per reference set.
    """
    scorers = {metric: metrics.make_metric(metric, tgt_lang)}
    signatures, results = PairedTest(list(systems), scorers, references, kind, samples)()
    ((name, signature),) = signatures.items()
    return _Test(signature.format(), results[name])


def _with_interval(score: Score, system: int, bootstrap: _Test | None) -> Score:
    """A score with the 95% interval of the bootstrap, if there was one."""
    if bootstrap is None:
        return score
    result = bootstrap.results[system]
    return replace(
        score,
        signature=bootstrap.signature,
        mean=float(result.mean),
        confidence=float(result.ci),
    )


def _compare(
    systems: Sequence[System],
    system: int,
    metric: int,
    bootstrap: _Test | None,
    randomization: _Test | None,
) -> Comparison:
    """Comparison of a system with the first by one metric, with a correction to sacreBLEU.

    It counts the resamples whose difference is greater than the observed one, whereas a p-value
    counts those at least as great. For two identical systems, where all differences are 0, it would
    report p = 0.0001. If many lines differ there are hardly any ties, and p is sacreBLEU's.
    """
    baseline, other = systems[0], systems[system]
    score = other.scores[metric]
    difference = score.score - baseline.scores[metric].score
    # A trial that swaps all n lines that differ, or none of them, gives the observed difference:
    # 2 of 2^n trials do.
    differing = sum(map(operator.ne, baseline.hypotheses, other.hypotheses))
    p_values: list[float | None] = []
    for tested, least in (bootstrap, 0.0), (randomization, 2.0 ** (1 - differing)):
        if tested is None:
            p_values.append(None)
        else:
            p_values.append(max(tested.results[system].p_value, least) if difference else 1.0)
    return Comparison(other.name, score.name, difference, *p_values)


def short_names(paths: Sequence[str]) -> list[str]:
    """Shortest unique end of each path: ``x/a/out, x/b/out, x/c`` → ``a/out``, ``b/out``, ``c``."""
    parts = [Path(path).parts for path in paths]

    def short(i: int) -> str:
        for length in range(1, len(parts[i]) + 1):
            end = parts[i][-length:]
            if sum(other[-length:] == end for other in parts) == 1:
                return str(Path(*end))
        return paths[i]  # "." has no parts, and "./a" has the same parts as "a"

    return [short(i) for i in range(len(paths))]
