"""An evaluation as text and as JSON; several systems are a table, as sacreBLEU's."""

import json
import os
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tabulate import MIN_PADDING, tabulate

from transformer_mt.evaluation import scores
from transformer_mt.evaluation.comparison import Evaluation, System
from transformer_mt.evaluation.scores import SIGNIFICANT, Score, format_segments

_WIDTH = 80
_COLUMNS = 4
"""Metrics side by side, as many as fit the width; any others make another table."""
_HEADER = 10
"""Maximum width of a header, which makes no column wider than ``31.85 ± 0.88`` is."""


def to_text(evaluation: Evaluation) -> str:
    """A list of the scores of one system, or a table of several, for an 80-column terminal."""
    systems, settings = evaluation.systems, evaluation.settings
    if len(systems) > 1:
        metrics = range(len(systems[0].scores))
        blocks = [_table(evaluation, metrics[i : i + _COLUMNS]) for i in metrics[::_COLUMNS]]
        lines = [*blocks, *_notes(evaluation), *signatures(systems[0].scores)]
    else:
        lines = [scores.to_text(systems[0].scores), *_interval_note(evaluation)]
    return "\n".join([*lines, *map(_length_table, systems)] if settings.by_length else lines)


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


def _table(evaluation: Evaluation, metrics: range) -> str:
    systems = evaluation.systems
    columns = [[_cell(system.scores[i]) for system in systems] for i in metrics]
    names = [f"{systems[0].name} (baseline)", *(system.name for system in systems[1:])]
    headers = [textwrap.fill(systems[0].scores[i].name, _HEADER) for i in metrics]
    widths = [
        max(_width(header) + MIN_PADDING, *map(_width, column))
        for header, column in zip(headers, columns, strict=True)
    ]
    return tabulate(
        list(zip(names, *columns, strict=True)),
        headers=["System", *headers],
        tablefmt="fancy_grid",
        maxcolwidths=[_WIDTH - len("│  │") - sum(width + len("  │") for width in widths)],
        disable_numparse=True,
    )


def _length_table(system: System) -> str:
    """The scores of one system by length: a line for each length, or for each tag and length."""
    rows = groupby(system.by_length, key=lambda score: f"{score.tag} {score.length}".strip())
    content = [(length, list(own)) for length, own in rows]
    return tabulate(
        [
            [length, own[0].segments, *(f"{score.score:.{score.decimals}f}" for score in own)]
            for length, own in content
        ],
        headers=[
            system.name,
            "lines",
            *(textwrap.fill(score.name, _HEADER) for score in content[0][1]),
        ],
        colalign=("left", *["right"] * (1 + len(content[0][1]))),
        tablefmt="fancy_grid",
        maxcolwidths=[_HEADER * 2],
        disable_numparse=True,
    )


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


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
    if evaluation.has_tests:
        yield "p: probability of a difference this large if both systems were equally good,"
        yield f"   by the paired bootstrap test; *: p is below {SIGNIFICANT}"


def _interval_note(evaluation: Evaluation) -> Iterator[str]:
    if resamples := evaluation.settings.bootstrap:
        seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
        yield f"μ ± half the 95% interval: {resamples:,} resamples, seed {seed}"


def signatures(items: Sequence[Score]) -> Iterator[str]:
    """The lines below a table that give the signature of each metric."""
    yield "Signatures:"
    for score in items:
        yield score.name
        yield f"  {score.short_signature}"  # never wrapped: it is copied into papers
