"""Evaluation of one or several systems on one test set, each compared with the first."""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sacrebleu.significance import PairedTest

from transformer_mt.data.store.workers import map_ordered
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.files import testset_files
from transformer_mt.data.text.tags import lines_by_tag, split_tag
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.score_diagnostics import diagnose
from transformer_mt.evaluation.scores import Score, check_line_counts, compute_score
from transformer_mt.kernels.hardware import available_cores

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
    tags: Collection[str] = ()
    """All tags that a source line may start with."""
    languages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Source and target language of each tag whose languages differ from the model's."""


def load_testset(name: str, langs: str) -> TestSet:
    """A sacreBLEU test set, downloaded if necessary; see ``testset_files``."""
    source, references = testset_files(name, langs)
    return TestSet(
        references={path.name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
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


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Results of all systems on one test set; the first system is the baseline."""

    systems: list[System]
    test: TestSet
    settings: Settings

    @property
    def has_tests(self) -> bool:
        """Whether the systems were compared by paired tests."""
        tested = self.settings.bootstrap or self.settings.randomization
        return bool(len(self.systems) > 1 and self.settings.metrics and tested)


def evaluate_systems(
    systems: Mapping[str, Sequence[str]], test: TestSet, settings: Settings
) -> Evaluation:
    """Scores of every system, given by the path of its file or model, compared with the first.

    If lines of the test set have tags, the lines of each tag are scored apart.

    Raises:
        InputError: The numbers of lines differ, there is nothing to score, a metric is not
            available here, or a worker process was killed.
    """
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.references})
    evaluated = [
        System(name=name, hypotheses=hypotheses, scores=[], diagnostics=[])
        for name, hypotheses in zip(short_names(list(systems)), systems.values(), strict=True)
    ]
    sets, source = list(test.references.values()), test.source
    groups = {"": range(len(sets[0]))} if source is None else lines_by_tag(source, test.tags)
    words = not {"bleu", "ter"}.isdisjoint(settings.metrics)
    workers = settings.workers
    if workers is None:
        resampled = settings.bootstrap or settings.randomization
        workers = available_cores() if resampled and len(sets[0]) >= _WORTH_WORKERS else 0
    for tag, lines in groups.items():
        language = test.languages.get(tag, ("", settings.tgt_lang))[1]
        own = replace(settings, tgt_lang=language)
        references = [[text[i] for i in lines] for text in sets]
        text = None if source is None else [split_tag(source[i], test.tags)[1] for i in lines]
        named: list[tuple[str, Sequence[str]]] = [
            (system.name, [system.hypotheses[i] for i in lines]) for system in evaluated
        ]
        evaluate = partial(_evaluate_metric, systems=named, references=references, settings=own)
        # TER, by far the slowest, is usually the last.
        results = list(map_ordered(evaluate, own.names[::-1], workers))[::-1]
        about = "" if groups.keys() == {""} else f"{tag or 'no tag'}: "
        for i, system in enumerate(evaluated):
            system.scores.extend(replace(scores[i], tag=tag) for scores in results)
            own_lines = named[i][1]
            messages = diagnose(own_lines, references, text, tgt_lang=language, words=words)
            system.diagnostics.extend(about + message for message in messages)
    return Evaluation(systems=evaluated, test=test, settings=settings)


def _evaluate_metric(
    metric: str,
    *,
    systems: list[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    settings: Settings,
) -> list[Score]:
    """Scores of all systems by one metric; but for protocols, each is compared with the first.

    One correction to sacreBLEU's p-values: it counts the resamples whose difference is greater than
    the observed one, whereas a p-value counts those at least as great. For two identical systems,
    where all differences are 0, it would report p = 0.0001. If many lines differ there are hardly
    any ties, and p is sacreBLEU's.
    """
    language = settings.tgt_lang
    scores = [compute_score(metric, language, lines, references) for _, lines in systems]
    compared = len(systems) > 1 and metric in settings.metrics
    tests = (
        ("bs", settings.bootstrap, "p_bootstrap"),  # gives intervals, too, also for one system
        ("ar", settings.randomization if compared else 0, "p_randomization"),
    )
    for kind, samples, p_value in tests:
        if not samples:
            continue
        scorers = {metric: metrics.make_metric(metric, language)}
        signatures, outcome = PairedTest(systems, scorers, references, kind, samples)()
        ((name, signature),) = signatures.items()
        results: list[Any] = outcome[name]
        for i, (result, (_, lines)) in enumerate(zip(results, systems, strict=True)):
            if kind == "bs":
                mean, half = float(result.mean), float(result.ci)
                text = signature.format()
                scores[i] = replace(scores[i], signature=text, mean=mean, confidence=half)
            if compared and i > 0:
                difference = scores[i].score - scores[0].score
                # A trial of the randomisation test that swaps all n lines that differ, or none of
                # them, gives the observed difference: 2 of 2^n trials do.
                differing = sum(map(operator.ne, systems[0][1], lines))
                least = 2.0 ** (1 - differing) if kind == "ar" else 0.0
                p = max(result.p_value, least) if difference else 1.0
                tested: dict[str, Any] = {"difference": difference, p_value: p}
                scores[i] = replace(scores[i], **tested)
    return scores


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
