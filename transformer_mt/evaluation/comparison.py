"""Evaluation of one or several systems on one test set, each compared with the first."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer_mt.data.text.tags import split_tag
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

    def by_length(self) -> tuple[str, dict[str, list[int]]]:
        """Groups the lines by the bounds of ``LENGTHS``, from short to long.

        Lengths are measured on the sources without tags, or else on the first references.

        Returns:
            The unit, words, or characters if the text has no spaces; and the indices of the lines
            of each length. The keys are the lengths, such as ``4–9``.
        """
        lines: Sequence[str] = [text for _, text in self.split_source()]
        lines = lines or next(iter(self.references.values()))
        unspaced = is_unspaced([lines])
        lengths = [len(line if unspaced else line.split()) or 1 for line in lines]
        groups: dict[str, list[int]] = {}
        for first, end in pairwise((*LENGTHS, inf)):
            label = f"{first}–{end - 1}" if end < inf else f"{first}+"
            if own := [i for i, length in enumerate(lengths) if first <= length < end]:
                groups[label] = own
        return "characters" if unspaced else "words", groups

    def select(self, lines: Sequence[int]) -> "TestSet":
        """Some of the lines, without their tags."""
        source = self.split_source()
        references = {name: [texts[i] for i in lines] for name, texts in self.references.items()}
        return TestSet(
            references=references, source=[source[i][1] for i in lines] if source else None
        )

    def split_source(self) -> list[tuple[str, str]]:
        """The tag of each source line, or "", and its text."""
        return [split_tag(line, self.tags) for line in self.source or ()]


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


def evaluate_systems(
    systems: Mapping[str, Sequence[str]], test: TestSet, settings: ScoreSettings
) -> Evaluation:
    """Scores of every system, given by the path of its file or model, compared with the first.

    If lines of the test set have tags, the lines of each tag are scored apart.

    Raises:
        InputError: The numbers of lines differ, there is nothing to score, or a metric is not
            available here.
    """
    evaluated = []
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.references})
        evaluated.append(System(name=name, hypotheses=hypotheses, scores=[], diagnostics=[]))
    groups = defaultdict[str, list[int]](list)  # the lines with each tag, or "" for none
    tags = [tag for tag, _ in test.split_source()] or [""] * len(evaluated[0].hypotheses)
    for i, tag in enumerate(tags):
        groups[tag].append(i)
    words = not {"bleu", "ter"}.isdisjoint(settings.names)
    for tag, lines in groups.items():
        part = test.select(lines)
        texts = [(system.name, [system.hypotheses[i] for i in lines]) for system in evaluated]
        language = test.languages.get(tag, ("", settings.tgt_lang))[1]
        own = replace(settings, tgt_lang=language)
        for scores in _scores(texts, part, own):
            for system, score in zip(evaluated, scores, strict=True):
                system.scores.append(replace(score, tag=tag))
        unit, lengths = part.by_length() if settings.by_length else ("", {})
        for length, places in lengths.items():
            chosen = [(name, [hypotheses[i] for i in places]) for name, hypotheses in texts]
            for scores in _scores(chosen, part.select(places), replace(own, bootstrap=0)):
                for system, score in zip(evaluated, scores, strict=True):
                    system.by_length.append(replace(score, tag=tag, length=f"{length} {unit}"))
        about = "" if len(groups) == 1 and not tag else f"{tag or 'no tag'}: "
        references = list(part.references.values())
        for system, (_, hypotheses) in zip(evaluated, texts, strict=True):
            messages = diagnose(hypotheses, references, part.source, tgt_lang=language, words=words)
            system.diagnostics.extend(about + message for message in messages)
    return Evaluation(systems=evaluated, test=test, settings=settings)


def _scores(
    texts: Sequence[tuple[str, Sequence[str]]], test: TestSet, settings: ScoreSettings
) -> Iterator[list[Score]]:
    """For each metric, the scores of all systems, given by their names and translations."""
    references = list(test.references.values())
    for name in settings.names:
        metric = settings.metric(name)
        scores = [make_score(metric, hypotheses, references) for _, hypotheses in texts]
        if settings.bootstrap:
            # It gives intervals, also for one system, and unlike sacreBLEU's ``--confidence`` also
            # where no n-gram matches.
            paired: Any = PairedTest(texts, {name: metric}, references, "bs", settings.bootstrap)  # type: ignore[arg-type]
            scores = _compared(scores, *paired())
        yield scores


def _compared(
    scores: Sequence[Score], signatures: Mapping[str, Any], outcome: Mapping[str, Any]
) -> list[Score]:
    """Scores with intervals and, but for the first, their comparison with it.

    The p-values are sacreBLEU's, but for equal scores, where p is 1: sacreBLEU counts the resamples
    whose difference is greater than the observed one, and reports p = 0.001 for identical systems.
    """
    ((name, signature),) = signatures.items()
    compared = list[Score]()
    for score, result in zip(scores, outcome[name], strict=True):
        difference = score.score - scores[0].score if compared else None
        compared.append(
            replace(
                score,
                signature=signature.format(),
                mean=float(result.mean),
                confidence=float(result.ci),
                difference=difference,
                p_bootstrap=1.0 if difference == 0 else result.p_value,
            )
        )
    return compared
