"""Charts of scores by length and of training curves, drawn with matplotlib.

Those of a report are SVG in the colours of the page: without a script, about ten kilobytes each,
where interactive chart libraries add one to five megabytes to every page. A model card has a PNG.
"""

import io
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

from transformer_mt import Evaluation

GROUPS = 5
"""Maximum number of groups of sentences by length."""

Series = tuple[Sequence[float], Sequence[float]]
"""Steps and values of a curve."""

CURVES = {
    "loss": "Loss",
    "ppl": "Perplexity",
    "bleu": "BLEU",
    "lowercase_tokens": "BLEU (lower-case tokens)",
    "chrf": "chrF2",
    "lr": "Learning rate",
    "tokens_per_second": "Target tokens per second",
}
"""Keys of ``metrics.jsonl`` that are charted, with their titles."""

# Placeholder colours, replaced by CSS variables that differ between light and dark mode.
_TEXT, _LINE = "#010203", "#010204"
_SERIES = [f"#01020{5 + i}" for i in range(5)]
_CSS = {
    _TEXT: "currentColor",
    _LINE: "var(--line)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(_SERIES, 1)},
}

_STYLE: Any = {  # matplotlib types each key
    "svg.fonttype": "none",
    "svg.hashsalt": "transformer_mt",
    "text.parse_math": False,
    "font.size": 11,
    "axes.edgecolor": _LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _TEXT,
    "ytick.labelcolor": _TEXT,
    "lines.linewidth": 1.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True)
class Chart:
    """A figure with title, note and legend."""

    title: str
    svg: str
    note: str = ""
    legend: list[str] = field(default_factory=list)
    """Names of the series in the order of their colours; empty if the series are the systems."""


@mpl.rc_context(_STYLE)
def group_charts(evaluation: Evaluation) -> list[Chart]:
    """BLEU and chrF by length of the source or, if that is unknown, of the reference."""
    sets, source = list(evaluation.test.references.values()), evaluation.test.source
    side = "reference" if source is None else "source"
    groups = by_length(sets[0] if source is None else source)
    note = f"Sentences: {', '.join(f'{len(lines):,}' for lines in groups.values())}."
    width = 0.8 / len(evaluation.systems)
    charts = []
    for metric, name in (("bleu", "BLEU"), ("chrf", "chrF2")):
        scorer = evaluation.settings.metric(metric)
        figure, axes = _figure()
        for number, system in enumerate(evaluation.systems):
            for place, lines in enumerate(groups.values()):
                references = [[texts[i] for i in lines] for texts in sets]
                score = scorer.corpus_score([system.hypotheses[i] for i in lines], references).score
                left = place - 0.4 + (number + 0.5) * width
                axes.bar(left, score, width * 0.92, color=_SERIES[number])
        axes.set_xticks(range(len(groups)), [*groups])
        axes.tick_params(axis="x", length=0)
        charts.append(Chart(f"{name} by length of the {side}", _svg(metric, figure), note))
    return charts


def by_length(lines: Sequence[str]) -> dict[str, list[int]]:
    """Indices of sentences from short to long, in groups of about equal size.

    The keys are the lengths, in words, or in characters if there are no spaces.
    """
    words = [len(line.split()) for line in lines]
    characters = [len(line) for line in lines]
    sparse = sum(words) * 20 < sum(characters)
    lengths, unit = (characters, "characters") if sparse else (words, "words")
    edges = np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:-1])
    parts = np.digitize(lengths, edges, right=True)  # equal lengths share a part
    groups: dict[str, list[int]] = {}
    for part in np.unique(parts):
        indices = np.flatnonzero(parts == part).tolist()
        inside = [lengths[i] for i in indices]
        first, last = min(inside), max(inside)
        label = f"{first}–{last}" if first != last else f"{first}"
        groups[f"{label} {unit}" if part == parts.max() else label] = indices
    return groups


@mpl.rc_context(_STYLE)
def curve_charts(records: Sequence[dict[str, Any]]) -> list[Chart]:
    """Training and validation curves from the records of ``metrics.jsonl``."""
    charts = []
    for key, series in curve_series(records, CURVES).items():
        figure, axes = _figure()
        _draw_curves(axes, [*series.values()], _SERIES)
        charts.append(Chart(CURVES[key], _svg(f"curve-{key}", figure), "", [*series]))
    return charts


def curve_image(records: Sequence[dict[str, Any]]) -> bytes | None:
    """A PNG with loss and validation BLEU side by side; None if there is nothing to draw."""
    panels = curve_series(records, ("loss", "bleu", "lowercase_tokens"))
    if not panels:
        return None
    image = io.BytesIO()
    with mpl.rc_context({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9}):
        figure = Figure(figsize=(4.5 * len(panels), 2.8), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)
        for axes, (key, series) in zip(grid[0], panels.items(), strict=True):
            colors = [f"C{i}" for i in range(len(series))]
            lines = _draw_curves(axes, [*series.values()], colors)
            axes.set_title(CURVES[key])
            axes.set_xlabel("update")
            axes.legend(lines, [*series])
        figure.savefig(image, format="png", dpi=100)
    return image.getvalue()


def curve_series(
    records: Sequence[dict[str, Any]], keys: Collection[str]
) -> dict[str, dict[str, Series]]:
    """Steps and values of training and of validation, by key; only keys that have any."""
    panels: dict[str, dict[str, Series]] = {}
    for key in keys:
        for split, name in (("train", "training"), ("valid", "validation")):
            points = [
                (record["step"], record[key])
                for record in records
                if record["split"] == split and isinstance(record.get(key), int | float)
            ]
            if points:
                steps, values = zip(*points, strict=True)
                panels.setdefault(key, {})[name] = (steps, values)
    return panels


def _draw_curves(axes: Axes, series: Sequence[Series], colors: Sequence[str]) -> list[Line2D]:
    """Draws values over steps; the y-axis ignores the first tenth, which would flatten the rest."""
    lines = []
    for color, (steps, values) in zip(colors, series, strict=False):
        marker = "o" if len(values) < 20 else None
        lines += axes.plot(steps, values, color=color, marker=marker, markersize=3.5)
    settled = [value for _, values in series for value in values[len(values) // 10 :]]
    settled = [value for value in settled if math.isfinite(value)]
    if settled:
        low, high = min(settled), max(settled)
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1
        axes.set_ylim(low - margin, high + margin)
        if high >= 1000:
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        elif high < 0.1:
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return lines


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 2.4), layout="constrained")
    return figure, figure.add_subplot()


def _svg(name: str, figure: Figure) -> str:
    """The bare ``<svg>`` element of a figure, with colours from CSS.

    Its identifiers start with the name, which must be unique on the page.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, css in _CSS.items():
        svg = svg.replace(colour, css)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'role="img"', svg, count=1)
