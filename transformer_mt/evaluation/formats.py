"""Text and JSON forms of an evaluation; several systems are a table, as sacreBLEU's."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from transformer_mt.evaluation import scores
from transformer_mt.evaluation.comparison import SIGNIFICANT, Comparison
from transformer_mt.evaluation.resampling import seed_text
from transformer_mt.evaluation.scores import Score, count_segments, lasting_signature
from transformer_mt.evaluation.systems import Evaluation

_WIDTH = 80
_METRICS = 4
"""Metrics side by side, as many as fit the width; any others make another table."""
_CELL = len("31.85 ± 0.88")


def to_text(evaluation: Evaluation) -> str:
    """A list of the scores of one system, or a table of several, for an 80-column terminal."""
    systems = evaluation.systems
    if len(systems) > 1:
        metrics = range(len(systems[0].scores))
        blocks = [_table(evaluation, metrics[i : i + _METRICS]) for i in metrics[::_METRICS]]
        return "\n".join([*blocks, *_notes(evaluation), *_signatures(evaluation)])
    return "\n".join([scores.to_text(systems[0].scores), *_interval_note(evaluation)])


def to_json(evaluation: Evaluation) -> str:
    """JSON: sacreBLEU's list of scores; for several systems a list of ``{system, scores}``."""
    systems = evaluation.systems
    if len(systems) == 1:
        return scores.to_json(systems[0].scores)
    found = {(item.system, item.metric): item for item in evaluation.comparisons}
    content = []
    for system in systems:
        rows: list[dict[str, Any]] = [scores.to_row(score) for score in system.scores]
        for row in rows:
            item = found.get((system.name, row["name"]))
            if item is not None:
                row["baseline"] = systems[0].name
                row["paired_bs_p_value"] = item.p_bootstrap
                row["paired_ar_p_value"] = item.p_randomization
        content.append({"system": system.name, "scores": rows})
    return json.dumps(content, indent=1, ensure_ascii=False)


def _table(evaluation: Evaluation, metrics: range) -> str:
    compared = {(item.system, item.metric): item for item in evaluation.comparisons}
    baseline, *_ = evaluation.systems
    rows = []
    for system in evaluation.systems:
        name = f"{system.name} (baseline)" if system is baseline else system.name
        columns = [system.scores[i] for i in metrics]
        rows.append([name, *(_cell(of, compared.get((system.name, of.name))) for of in columns)])
    names = _WIDTH - len("│  │") - len(metrics) * (_CELL + len("  │"))
    return tabulate(
        rows,
        headers=["System", *(baseline.scores[i].name for i in metrics)],
        tablefmt="fancy_grid",
        maxcolwidths=[names, *[None] * len(metrics)],
        maxheadercolwidths=[names, *[_CELL] * len(metrics)],
        disable_numparse=True,
    )


def _cell(score: Score, comparison: Comparison | None) -> str:
    lines = [f"{score.score:.{score.decimals}f}"]
    if score.mean is not None:
        lines.append(f"{score.mean:.{score.decimals}f} ± {score.confidence:.{score.decimals}f}")
    if comparison is not None:
        lines[0] += " *" * comparison.is_significant
        tests = ("bs", comparison.p_bootstrap), ("ar", comparison.p_randomization)
        lines += [f"p({test}) {p:.4f}" for test, p in tests if p is not None]
    return "\n".join(lines)


def _notes(evaluation: Evaluation) -> Iterator[str]:
    settings, references = evaluation.settings, len(evaluation.test.references)
    segments = count_segments(len(evaluation.systems[0].hypotheses))
    yield f"{segments}, {references} reference{'' if references == 1 else 's'}"
    yield from _interval_note(evaluation)
    if evaluation.comparisons:
        tests = [
            ("bs: paired bootstrap", settings.bootstrap),
            ("ar: paired approximate randomisation", settings.randomization),
        ]
        run = "; ".join(f"{name}, {number:,} samples" for name, number in tests if number)
        text = "p: probability of a difference this large if both systems were equally good"
        yield textwrap.fill(f"{text} ({run}); *: every p is below {SIGNIFICANT}", _WIDTH)


def _interval_note(evaluation: Evaluation) -> Iterator[str]:
    if resamples := evaluation.settings.bootstrap:
        yield f"μ ± half the 95% interval: {resamples:,} resamples, seed {seed_text()}"


def _signatures(evaluation: Evaluation) -> Iterator[str]:
    yield "Signatures:"
    for score in evaluation.systems[0].scores:
        yield f"{score.name}"
        yield f"  {lasting_signature(score)}"  # never wrapped: it is copied into papers
