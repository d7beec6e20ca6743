"""Evaluation of one or several systems on one test set, each compared with the first."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, Self

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources import Pair, testset_files
from transformer_mt.data.text.tags import lines_by_tag, split_tag
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.score_diagnostics import diagnose, is_unspaced
from transformer_mt.evaluation.scores import Score, check_line_counts, make_score

LENGTHS = (1, 4, 10, 20, 40)
"""Lengths of lines from which on they are scored apart."""


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

    @classmethod
    def of_pairs(
        cls,
        pairs: Sequence[Pair],
        name: str,
        tags: Collection[str] = (),
        languages: Mapping[str, tuple[str, str]] | None = None,
    ) -> Self:
        """The test set of sentence pairs; ``name`` is that of the references."""
        return cls(
            references={name: [pair.tgt for pair in pairs]},
            source=[pair.src for pair in pairs],
            tags=tags,
            languages=languages or {},
        )

    def by_length(self) -> tuple[str, dict[str, list[int]]]:
        """``lines_by_length`` of the sources without tags, or else of the first references."""
        lines = [text for _, text in self.split_source()]
        return lines_by_length(lines or next(iter(self.references.values())))

    def split_source(self) -> list[tuple[str, str]]:
        """The tag of each source line, or "", and its text."""
        return [split_tag(line, self.tags) for line in self.source or ()]


def lines_by_length(lines: Sequence[str]) -> tuple[str, dict[str, list[int]]]:
    """Indices of lines from short to long, by the bounds of ``LENGTHS``.

    Returns:
        The unit, words, or characters if the text has no spaces; and the indices of the lines of
        each length. The keys are the lengths, such as ``4–9``.
    """
    unspaced = is_unspaced([lines])
    lengths = [len(line if unspaced else line.split()) or 1 for line in lines]
    groups: dict[str, list[int]] = {}
    for first, end in pairwise((*LENGTHS, inf)):
        label = f"{first}–{end - 1}" if end < inf else f"{first}+"
        groups[label] = [i for i, length in enumerate(lengths) if first <= length < end]
    return "characters" if unspaced else "words", {k: v for k, v in groups.items() if v}


def load_testset(name: str, langs: str) -> TestSet:
    """A sacreBLEU test set, downloaded if necessary; see ``testset_files``."""
    source, references = testset_files(name, langs)
    return TestSet(
        references={path.name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
    )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Metrics and tests to compute: the settings of ``mt-eval`` of the same names."""

    metrics: Sequence[str] | None = None
    tgt_lang: str | None = None
    bootstrap: int = 0
    by_length: bool = False

    @property
    def names(self) -> Sequence[str]:
        """Names of all metrics, for ``make_metric``."""
        return metrics.default(self.tgt_lang) if self.metrics is None else self.metrics

    def metric(self, name: str) -> Metric:
        """A metric for the target language; see ``make_metric``."""
        return metrics.make_metric(name, self.tgt_lang)


@dataclass(frozen=True, kw_only=True)
class System:
    """One system's translations with their scores."""

    name: str
    """Path of its file or model."""
    hypotheses: Sequence[str] = field(repr=False)  # a notebook would print all of them
    scores: list[Score]
    by_length: list[Score] = field(default_factory=list, repr=False)
    """The scores of the lines of each length, if requested."""
    diagnostics: list[str]
    """Warnings about the scores; see ``score_diagnostics``."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Results of all systems on one test set; the first system is the baseline."""

    systems: list[System]
    test: TestSet = field(repr=False)
    settings: ScoreSettings

    @property
    def has_tests(self) -> bool:
        """Whether the systems were compared by paired tests."""
        return bool(len(self.systems) > 1 and self.settings.names and self.settings.bootstrap)


def evaluate_systems(
    systems: Mapping[str, Sequence[str]], test: TestSet, settings: ScoreSettings
) -> Evaluation:
    """Scores of every system, given by the path of its file or model, compared with the first.

    If lines of the test set have tags, the lines of each tag are scored apart.

    Raises:
        InputError: The numbers of lines differ, there is nothing to score, or a metric is not
            available here.
    """
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.references})
    evaluated = [
        System(name=name, hypotheses=hypotheses, scores=[], diagnostics=[])
        for name, hypotheses in systems.items()
    ]
    groups = list(_groups(evaluated, test, settings))
    words = not {"bleu", "ter"}.isdisjoint(settings.names)
    for group in groups:
        for metric in group.settings.names:
            for system, score in zip(evaluated, _scores(group, metric), strict=True):
                system.scores.append(score)
        for length, part in group.by_length() if settings.by_length else ():
            for metric in group.settings.names:
                for system, score in zip(evaluated, _scores(part, metric), strict=True):
                    system.by_length.append(replace(score, length=length))
        about = "" if len(groups) == 1 and not group.tag else f"{group.tag or 'no tag'}: "
        for system, (_, lines) in zip(evaluated, group.systems, strict=True):
            messages = diagnose(
                lines,
                group.references,
                group.source,
                tgt_lang=group.settings.tgt_lang,
                words=words,
            )
            system.diagnostics.extend(about + message for message in messages)
    return Evaluation(systems=evaluated, test=test, settings=settings)


class _Group(NamedTuple):
    """The lines of a test set that have the same tag."""

    tag: str
    systems: list[tuple[str, list[str]]]
    """Name and translations of each system."""
    references: list[list[str]]
    source: list[str] | None
    settings: ScoreSettings
    """With the target language of the tag."""

    def by_length(self) -> "Iterator[tuple[str, _Group]]":
        """The lines of each length, without tests; of the source or, if unknown, the reference."""
        unit, groups = lines_by_length(self.source or self.references[0])
        for length, lines in groups.items():
            yield (
                f"{length} {unit}",
                self._replace(
                    systems=[(name, [texts[i] for i in lines]) for name, texts in self.systems],
                    references=[[texts[i] for i in lines] for texts in self.references],
                    settings=replace(self.settings, bootstrap=0),
                ),
            )


def _groups(systems: Sequence[System], test: TestSet, settings: ScoreSettings) -> Iterator[_Group]:
    sets, source = list(test.references.values()), test.source
    groups = {"": range(len(sets[0]))} if source is None else lines_by_tag(source, test.tags)
    for tag, lines in groups.items():
        yield _Group(
            tag,
            [(system.name, [system.hypotheses[i] for i in lines]) for system in systems],
            [[text[i] for i in lines] for text in sets],
            None if source is None else [split_tag(source[i], test.tags)[1] for i in lines],
            replace(settings, tgt_lang=test.languages.get(tag, ("", settings.tgt_lang))[1]),
        )


def _scores(group: _Group, name: str) -> list[Score]:
    """Scores of all systems by one metric; with resamples, each is compared with the first.

    The p-values are sacreBLEU's, but for equal scores, where p is 1: sacreBLEU counts the resamples
    whose difference is greater than the observed one, and reports p = 0.001 for identical systems.
    """
    settings = group.settings
    metric = settings.metric(name)
    scores = [
        make_score(metric, lines, group.references, tag=group.tag) for _, lines in group.systems
    ]
    if not settings.bootstrap:
        return scores
    # It gives intervals, also for one system, and unlike sacreBLEU's ``--confidence`` also where no
    # n-gram matches.
    named: list[Any] = group.systems
    test = PairedTest(named, {name: metric}, group.references, "bs", settings.bootstrap)
    signatures, outcome = test()
    ((called, signature),) = signatures.items()
    results: list[Any] = outcome[called]
    for i, result in enumerate(results):
        scores[i] = replace(
            scores[i],
            signature=signature.format(),
            mean=float(result.mean),
            confidence=float(result.ci),
        )
        if i > 0:
            difference = scores[i].score - scores[0].score
            p = result.p_value if difference else 1.0
            scores[i] = replace(scores[i], difference=difference, p_bootstrap=p)
    return scores
