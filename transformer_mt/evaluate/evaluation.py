"""All that is known of one or several systems on one test set, and how it is printed."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.evaluate import comparison, metrics
from transformer_mt.evaluate.comparison import Comparison
from transformer_mt.evaluate.score_diagnostics import suspicions
from transformer_mt.evaluate.scores import Score, check_line_counts
from transformer_mt.evaluate.test_set import TestSet

MANY_LINES = 10_000
"""More than this are resampled only if it is asked for: sacreBLEU holds all resamples at once."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is computed; the keys of ``mt-eval`` of the same names."""

    metrics: Sequence[str] = metrics.DEFAULT
    protocols: Sequence[str] | None = None
    tgt_lang: str | None = None
    normalization: str = "none"
    """``data.normalization`` of the system, if it is known."""
    bootstrap: int = 0
    randomization: int = 0


@dataclass(frozen=True, kw_only=True)
class System:
    """One system's translations and what they are worth."""

    name: str
    """The end of its path, as much as tells it from the others."""
    hypotheses: Sequence[str]
    scores: list[Score]
    suspicions: list[str]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Systems side by side, the baseline first."""

    systems: list[System]
    test: TestSet
    comparisons: list[Comparison]
    settings: Settings


def evaluate(systems: Mapping[str, Sequence[str]], test: TestSet, settings: Settings) -> Evaluation:
    """Scores every system, and compares each with the first.

    Args:
        systems: Hypotheses by the path of their file, or of the model.
        test: What they are measured against.
        settings: What is computed.

    Raises:
        InputError: The texts do not pair up line by line, or there is nothing to score.
    """
    for name, hypotheses in systems.items():
        check_line_counts({name: hypotheses, **test.texts})
    sets = list(test.references.values())
    named = dict(zip(short_names(list(systems)), systems.values(), strict=True))
    evaluated = [
        System(
            name=name,
            hypotheses=hypotheses,
            scores=metrics.score_all(
                hypotheses,
                sets,
                tgt_lang=settings.tgt_lang,
                normalization=settings.normalization,
                metrics=settings.metrics,
                protocols=settings.protocols,
                bootstrap=settings.bootstrap,
            ),
            suspicions=suspicions(
                hypotheses,
                sets,
                test.source,
                tgt_lang=settings.tgt_lang,
                words=not {"bleu", "ter"}.isdisjoint(settings.metrics),
            ),
        )
        for name, hypotheses in named.items()
    ]
    comparisons = comparison.compare(
        named,
        sets,
        tgt_lang=settings.tgt_lang,
        metrics=settings.metrics,
        bootstrap=settings.bootstrap,
        randomization=settings.randomization,
    )
    return Evaluation(systems=evaluated, test=test, comparisons=comparisons, settings=settings)


def short_names(paths: Sequence[str]) -> list[str]:
    """Of every path the shortest end that no other path has: ``a/out`` and ``b/out``, but ``c``."""
    parts = [Path(path).parts for path in paths]

    def short(i: int) -> str:
        for length in range(1, len(parts[i]) + 1):
            end = parts[i][-length:]
            if sum(other[-length:] == end for other in parts) == 1:
                return str(Path(*end))
        return paths[i]  # "." has no parts; and the parts of "./a" are those of "a"

    return [short(i) for i in range(len(paths))]


def to_text(evaluation: Evaluation) -> str:
    """Every system's scores for a person at an 80-column terminal, then the comparisons."""
    systems, resamples = evaluation.systems, evaluation.settings.bootstrap
    if len(systems) == 1:
        blocks = [metrics.to_text(systems[0].scores)]
    else:
        blocks = [f"{system.name}:\n{metrics.to_text(system.scores)}" for system in systems]
    if resamples:
        seed = os.environ.get("SACREBLEU_SEED", "12345")
        blocks.append(f"μ ± half the 95% interval: {resamples:,} resamples, seed {seed}")
    if evaluation.comparisons:
        blocks.append(comparison.to_text(evaluation.comparisons, systems[0].name))
    return "\n".join(blocks)


def to_json(evaluation: Evaluation) -> str:
    """One system: sacrebleu's list of scores. Several: the list of each, with its name."""
    systems = evaluation.systems
    if len(systems) == 1:
        return metrics.to_json(systems[0].scores)
    found = {(item.system, item.metric): item for item in evaluation.comparisons}
    content = []
    for system in systems:
        rows: list[dict[str, Any]] = [metrics.to_row(score) for score in system.scores]
        for row in rows:
            item = found.get((system.name, row["name"]))
            if item is not None:
                row["baseline"] = systems[0].name
                row["paired_bs_p_value"] = item.p_bootstrap
                row["paired_ar_p_value"] = item.p_randomization
        content.append({"system": system.name, "scores": rows})
    return json.dumps(content, indent=1, ensure_ascii=False)
