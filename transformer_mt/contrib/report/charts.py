"""Charts of scores by length and of training curves, drawn with matplotlib.

Those of a report are SVG in the colours of the page: without a script, about ten kilobytes each,
where interactive chart libraries add one to five megabytes to every page. A model card has a PNG.
"""

import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from transformer_mt import Evaluation

Series = tuple[Sequence[float], Sequence[float]]
"""Steps and values of a curve."""

CURVES = {
    "loss": "Loss",
    "ppl": "Perplexity",
    "bleu": "BLEU",
    "chrf": "chrF2",
    "lr": "Learning rate",
    "tokens_per_second": "Target tokens per second",
}
"""Keys of ``metrics.jsonl`` that are charted, with their titles."""

MAX_LOOSE_POINTS = 3
"""Points that are not worth a chart, and are not joined by a line in the chart of others."""

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
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
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
    """A figure with title and legend."""

    title: str
    svg: str
    legend: list[str] = field(default_factory=list)
    """Names of the series in the order of their colours; empty if the series are the systems."""


@mpl.rc_context(_STYLE)
def group_charts(evaluation: Evaluation) -> list[Chart]:
    """BLEU and chrF by length of the source or, if that is unknown, of the reference."""
    sets, source = list(evaluation.test.references.values()), evaluation.test.source
    side = "reference" if source is None else "source"
    unit, groups = evaluation.test.by_length()
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
                bar = axes.bar(left, score, width * 0.92, color=_SERIES[number])
                turn = 0 if len(evaluation.systems) < 3 else 90
                axes.bar_label(bar, fmt="%.1f", padding=2, fontsize=9, rotation=turn)
        labels = [f"{length}\nn = {len(lines):,}" for length, lines in groups.items()]
        axes.set_xticks(range(len(groups)), labels)
        axes.set_xlabel(unit)
        axes.tick_params(axis="x", length=0)
        axes.margins(y=0.2)  # for the numbers
        charts.append(Chart(f"{name} by length of the {side}", _svg(metric, figure)))
    return charts


@mpl.rc_context(_STYLE)
def curve_charts(records: Sequence[dict[str, Any]]) -> list[Chart]:
    """Training and validation curves from the records of ``metrics.jsonl``."""
    charts = []
    for key, series in curve_series(records, CURVES).items():
        figure, axes = _figure()
        _draw_curves(axes, key, series, _SERIES)
        charts.append(Chart(_title(key, series), _svg(f"curve-{key}", figure), [*series]))
    return charts


def curve_image(records: Sequence[dict[str, Any]]) -> bytes | None:
    """A PNG with loss and validation BLEU side by side; None if there is nothing to draw."""
    panels = curve_series(records, ("loss", "bleu"))
    if not panels:
        return None
    image = io.BytesIO()
    with mpl.rc_context({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9}):
        figure = Figure(figsize=(4.5 * len(panels), 2.8), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)
        for axes, (key, series) in zip(grid[0], panels.items(), strict=True):
            lines = _draw_curves(axes, key, series, [f"C{i}" for i in range(len(series))])
            axes.set_title(_title(key, series))
            if len(series) > 1:
                axes.legend(lines, [*series])
        figure.savefig(image, format="png", dpi=100)
    return image.getvalue()


def curve_series(
    records: Sequence[dict[str, Any]], keys: Collection[str]
) -> dict[str, dict[str, Series]]:
    """Steps and values of training and of validation, by key; only keys with enough points."""
    panels: dict[str, dict[str, Series]] = {}
    for key in keys:
        series: dict[str, Series] = {}
        for split, name in (("train", "training"), ("valid", "validation")):
            points = [
                (record["step"], value)
                for record in records
                if record["split"] == split and (value := record.get(key)) is not None
                if math.isfinite(value)
            ]
            if points:
                steps, values = zip(*points, strict=True)
                series[name] = (steps, values)
        if any(len(steps) > MAX_LOOSE_POINTS for steps, _ in series.values()):
            panels[key] = series
    return panels


def _title(key: str, series: Collection[str]) -> str:
    return f"Validation {CURVES[key]}" if [*series] == ["validation"] else CURVES[key]


def _draw_curves(
    axes: Axes, key: str, series: Mapping[str, Series], colors: Sequence[str]
) -> list[Line2D]:
    """Draws values over updates; perplexity, which falls by powers of ten, on a log scale."""
    lines = []
    for color, (steps, values) in zip(colors, series.values(), strict=False):
        ls, size = ("none", 6) if len(values) <= MAX_LOOSE_POINTS else ("-", 3.5)
        marker = "o" if len(values) < 20 else None
        lines += axes.plot(steps, values, ls=ls, color=color, marker=marker, markersize=size)
    if key == "ppl":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    elif key != "loss":
        axes.set_ylim(bottom=0)
    high = axes.get_ylim()[1]
    if high >= 1000:
        axes.yaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    elif key == "ppl" or high < 0.1:
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.set_xlabel("update")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    return lines


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5, 2.6), layout="constrained")
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
