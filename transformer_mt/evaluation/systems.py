"""Evaluation of one or several systems on one test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.testsets import testset_files
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.comparison import Comparison, compare
from transformer_mt.evaluation.resampling import resample
from transformer_mt.evaluation.score_diagnostics import diagnose
from transformer_mt.evaluation.scores import Score, check_line_counts, make_score
from transformer_mt.evaluation.statistics import Statistics, collect


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
    """Load a sacreBLEU test set, downloading it if necessary; see ``testset_files``."""
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


@dataclass(frozen=True, kw_only=True)
class System:
    """One system's translations with their scores."""

    name: str
    """Shortest end of its path that no other system has."""
    hypotheses: Sequence[str]
    scores: list[Score]
    diagnostics: list[str]
    """Warnings about the scores; see ``score_diagnostics``."""
    statistics: Mapping[str, Statistics]
    """Statistics by name of the metric or protocol."""


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
    """Score every system, given by the path of its file or model; compare each with the first.

    Raises:
        InputError: The numbers of lines differ, or there is nothing to score.
    """
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.texts})
    sets = list(test.references.values())
    named = dict(zip(short_names(list(systems)), systems.values(), strict=True))
    protocols = settings.protocols
    if protocols is None:
        protocols = metrics.default_protocols(settings.tgt_lang, settings.normalization)
    names, workers = [*settings.metrics, *protocols], settings.workers
    statistics = collect(named, sets, names, tgt_lang=settings.tgt_lang, workers=workers)
    resamples = resample(
        statistics,
        bootstrap=settings.bootstrap,
        randomization=settings.randomization,
        compared=settings.metrics,
        workers=workers,
    )
    words = not {"bleu", "ter"}.isdisjoint(settings.metrics)
    evaluated = [
        System(
            name=name,
            hypotheses=hypotheses,
            scores=[
                make_score(of, resamples.scores.get((name, metric)))
                for metric, of in statistics[name].items()
            ],
            statistics=statistics[name],
            diagnostics=diagnose(
                hypotheses, sets, test.source, tgt_lang=settings.tgt_lang, words=words
            ),
        )
        for name, hypotheses in named.items()
    ]
    comparisons = compare(statistics, resamples, settings.metrics)
    return Evaluation(systems=evaluated, test=test, comparisons=comparisons, settings=settings)


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
