"""Charts of a report: scores by groups of sentences, length ratios, and training curves."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from transformer_mt.evaluation import breakdown, figures
from transformer_mt.evaluation.statistics import Statistics
from transformer_mt.evaluation.systems import Evaluation

WIDEST = 3.0
"""Length ratios beyond this, or below its inverse, fall into the outer bins of the histogram."""

CURVES = {
    "loss": "Loss",
    "ppl": "Perplexity",
    "bleu": "BLEU",
    "chrf": "chrF2",
    "lr": "Learning rate",
    "tokens_per_second": "Target tokens per second",
}
"""Keys of ``metrics.jsonl`` that are charted, with their titles."""


@dataclass(frozen=True)
class Chart:
    """A figure with title, note and legend."""

    title: str
    svg: str
    note: str = ""
    legend: list[str] = field(default_factory=list)
    """Names of the series in the order of their colours; empty if the series are the systems."""


def letters(evaluation: Evaluation) -> list[str]:
    """Letters that stand for the systems in charts and tables."""
    return [chr(ord("A") + i) for i in range(len(evaluation.systems))]


def score_charts(evaluation: Evaluation) -> list[Chart]:
    """Confidence intervals of all systems, one chart per metric; none for a single system."""
    systems = evaluation.systems
    found = []
    for i, first in enumerate(systems[0].scores):
        scores = [system.scores[i] for system in systems]
        spans = [
            (score.mean, score.confidence)
            for score in scores
            if score.mean is not None and score.confidence is not None
        ]
        if len(spans) == len(systems) > 1:
            svg = figures.intervals(f"interval-{i}", letters(evaluation), spans)
            found.append(Chart(f"{first.name}, 95% intervals", svg))
    return found


def group_charts(evaluation: Evaluation, counts: Mapping[str, Sequence[Statistics]]) -> list[Chart]:
    """BLEU and chrF by length and by word frequency, words by frequency, and length ratios.

    ``counts`` are the statistics of every system, for ``bleu`` and for ``chrf``.
    """
    reference, *_ = evaluation.test.references.values()
    source = evaluation.test.source
    side = "reference" if source is None else "source"
    lengths = breakdown.by_length(reference if source is None else source)
    rarity = breakdown.by_frequency(reference)
    by_words = "Sentences grouped by the mean log frequency of their words."
    groupings = [
        (f"length of the {side}", "length", lengths, ""),
        ("word frequency of the reference", "frequency", rarity, by_words),
    ]
    found = []
    for what, kind, groups, note in groupings:
        sizes = ", ".join(f"{len(group.lines):,}" for group in groups)
        for metric, name in (("bleu", "BLEU"), ("chrf", "chrF2")):
            values = [[of.score(group.lines) for group in groups] for of in counts[metric]]
            svg = figures.bars(f"{metric}-{kind}", [group.label for group in groups], values)
            found.append(Chart(f"{name} by {what}", svg, f"{note} Sentences: {sizes}.".strip()))
    return [*found, _words(evaluation, reference), _ratios(evaluation, reference)]


def _words(evaluation: Evaluation, reference: Sequence[str]) -> Chart:
    found = [dict(breakdown.word_f1(s.hypotheses, reference)) for s in evaluation.systems]
    labels = list(found[0])
    svg = figures.bars("words", labels, [[of[label] for label in labels] for of in found])
    note = "F1 of words, by how often they occur in the references."
    return Chart("Word F1 by frequency", svg, note)


def _ratios(evaluation: Evaluation, reference: Sequence[str]) -> Chart:
    series = [
        [len(h) / len(r) for h, r in zip(system.hypotheses, reference, strict=True) if h and r]
        for system in evaluation.systems
    ]
    svg = figures.ratios("ratios", series, WIDEST)
    note = "Sentences by output / reference length in characters; the outer bins hold the rest."
    return Chart("Length ratio", svg, note)


def curve_charts(records: Sequence[dict[str, Any]]) -> list[Chart]:
    """Training and validation curves from the records of ``metrics.jsonl``."""
    return [
        Chart(CURVES[key], figures.curves(f"curve-{key}", [*series.values()]), "", [*series])
        for key, series in curve_series(records, CURVES).items()
    ]


def curve_image(file: BinaryIO, records: Sequence[dict[str, Any]], keys: Collection[str]) -> None:
    """Write the curves of some keys of ``CURVES`` as a PNG, side by side."""
    series = curve_series(records, keys)
    figures.curve_image(file, {CURVES[key]: values for key, values in series.items()})


def curve_series(
    records: Sequence[dict[str, Any]], keys: Collection[str]
) -> dict[str, dict[str, figures.Series]]:
    """Steps and values of training and of validation, by key; of keys that have any."""
    found: dict[str, dict[str, figures.Series]] = {}
    for key in keys:
        for split, name in (("train", "training"), ("valid", "validation")):
            points = [
                (record["step"], record[key])
                for record in records
                if record["split"] == split and isinstance(record.get(key), int | float)
            ]
            if points:
                steps, values = zip(*points, strict=True)
                found.setdefault(key, {})[name] = (steps, values)
    return found
