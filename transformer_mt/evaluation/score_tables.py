"""An evaluation as text and as JSON; several systems are a table, as sacreBLEU's."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tabulate import tabulate

from transformer_mt.evaluation import scores
from transformer_mt.evaluation.comparison import Evaluation, System
from transformer_mt.evaluation.scores import SIGNIFICANT, Score, format_segments

_NAME, _HEADER = 12, 10
"""Maximum widths of the first column and of other headers: four metrics fit 80 columns."""


def to_text(evaluation: Evaluation) -> str:
    """A list of the scores of one system, or a table of several; and their scores by length."""
    systems = evaluation.systems
    if len(systems) > 1:
        lines = [_comparison(systems), *_notes(evaluation)]
    else:
        lines = [scores.to_text(systems[0].scores), *_interval_note(evaluation)]
    # A metric that reads the source has no scores by length.
    return "\n".join([*lines, *(_length_table(system) for system in systems if system.by_length)])


def to_json(evaluation: Evaluation) -> str:
    """JSON: sacreBLEU's list of scores; for several systems a list of ``{system, scores}``."""
    systems = evaluation.systems
    if len(systems) == 1:
        return scores.to_json([*systems[0].scores, *systems[0].by_length])
    content = []
    for system in systems:
        own = [*system.scores, *system.by_length]
        rows: list[dict[str, Any]] = [score.to_row() for score in own]
        for row, score in zip(rows, own, strict=True):
            if score.difference is not None:
                row["baseline"] = systems[0].name
                row["paired_bs_p_value"] = score.p_bootstrap
        content.append({"system": system.name, "scores": rows})
    return json.dumps(content, indent=1, ensure_ascii=False)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return tabulate(
        rows,
        headers=headers,
        tablefmt="fancy_grid",
        maxcolwidths=[_NAME],
        maxheadercolwidths=[_NAME, *[_HEADER] * (len(headers) - 1)],
        disable_numparse=True,
    )


def _comparison(systems: Sequence[System]) -> str:
    """A row for each system."""
    names = [f"{systems[0].name} (baseline)", *(system.name for system in systems[1:])]
    rows = [[name, *map(_cell, system.scores)] for name, system in zip(names, systems, strict=True)]
    return _table(["System", *(score.name for score in systems[0].scores)], rows)


def _length_table(system: System) -> str:
    """A row for each length, or for each tag and length."""
    groups = groupby(system.by_length, key=lambda score: f"{score.tag} {score.length}".strip())
    names = list(dict.fromkeys(score.name for score in system.by_length))
    rows = []
    for length, group in groups:
        own = {score.name: score for score in group}  # the metrics differ by language
        cells = [_cell(own[name]) if name in own else "" for name in names]
        rows.append([length, f"{next(iter(own.values())).segments:,}", *cells])
    return _table([system.name, "lines", *names], rows)


def _cell(score: Score) -> str:
    lines = [f"{score.score:.{score.decimals}f}"]
    if score.mean is not None:
        lines.append(f"{score.mean:.2f} ± {score.confidence:.2f}")
    lines[0] += " *" * score.is_significant
    if score.p_bootstrap is not None:
        lines.append(f"p {score.p_bootstrap:.4f}")
    return "\n".join(lines)


def _notes(evaluation: Evaluation) -> Iterator[str]:
    references = len(evaluation.test.references)
    segments = format_segments(len(evaluation.systems[0].hypotheses))
    yield f"{segments}, {references} reference{'' if references == 1 else 's'}"
    yield from _interval_note(evaluation)
    if any(score.p_bootstrap is not None for score in evaluation.systems[-1].scores):
        yield "p: probability of a difference this large if both systems were equally good,"
        yield f"   by the paired bootstrap test; *: p is below {SIGNIFICANT}"
    yield "Signatures:"
    for score in evaluation.systems[0].scores:
        yield score.name
        yield f"  {score.signature}"  # never wrapped: it is copied into papers


def _interval_note(evaluation: Evaluation) -> Iterator[str]:
    if any(score.mean is not None for score in evaluation.systems[0].scores):
        yield f"μ ± half the 95% interval, of {evaluation.settings.bootstrap:,} resamples"
