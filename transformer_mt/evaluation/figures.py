"""Drawing with matplotlib: charts as SVG in the colours of the page, attention weights as PNG.

An SVG chart needs no script and takes about ten kilobytes; interactive chart libraries add one to
five megabytes to every page.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter
from torch import Tensor

from transformer_mt.model.attention_maps import heat_map

# Placeholder colours, replaced by CSS variables that differ between light and dark mode.
_TEXT, _LINE = "#010203", "#010204"
_SERIES = [f"#01020{5 + i}" for i in range(5)]
_CSS = {
    _TEXT: "currentColor",
    _LINE: "var(--line)",
    **{colour: f"var(--series-{i})" for i, colour in enumerate(_SERIES, 1)},
}
Series = tuple[Sequence[float], Sequence[float]]
"""Steps and values of a curve."""
MAX_SERIES = len(_SERIES)
"""Maximum number of systems in a chart."""

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
    "savefig.facecolor": "none",
}


def bars(name: str, labels: Sequence[str], series: Sequence[Sequence[float]]) -> str:
    """Grouped bar chart; each series has a value for every label.

    As in all functions here, the chart's name must be unique on the page.
    """

    def draw(axes: Axes) -> None:
        width = 0.8 / len(series)
        for i, values in enumerate(series):
            places = [x - 0.4 + (i + 0.5) * width for x in range(len(values))]
            axes.bar(places, values, width * 0.92, color=_SERIES[i])
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(axis="x", length=0)

    return _svg(name, draw)


def intervals(name: str, labels: Sequence[str], spans: Sequence[tuple[float, float]]) -> str:
    """Confidence intervals, one below the other; each is a mean and half the width."""

    def draw(axes: Axes) -> None:
        for i, (mean, half) in enumerate(spans):
            axes.errorbar(mean, -i, xerr=half, fmt="o", color=_SERIES[i], capsize=4, markersize=6)
        axes.set_yticks(range(0, -len(labels), -1), labels)
        axes.set_ylim(-len(labels) + 0.4, 0.6)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(6))

    return _svg(name, draw, height=0.7 + 0.3 * len(labels))


def ratios(name: str, series: Sequence[Sequence[float]], widest: float) -> str:
    """Histogram of positive ratios from 1/widest to widest; the outer bins hold all beyond."""
    bins = 41
    edges = [widest ** (2 * i / bins - 1) for i in range(bins + 1)]

    def draw(axes: Axes) -> None:
        for i, values in enumerate(series):
            inside = [min(max(value, edges[0]), edges[-1]) for value in values]
            kind: Any = "stepfilled" if len(series) == 1 else "step"
            axes.hist(inside, edges, histtype=kind, color=_SERIES[i], linewidth=1.8)
        axes.axvline(1, color=_TEXT, linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.minorticks_off()
        ticks = [tick for tick in (0.33, 0.5, 0.7, 1, 1.4, 2, 3) if 1 / widest <= tick <= widest]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])

    return _svg(name, draw)


def curves(name: str, series: Sequence[Series]) -> str:
    """Line chart of values over training steps."""

    def draw(axes: Axes) -> None:
        _draw_curves(axes, series, _SERIES)

    return _svg(name, draw)


def curve_image(file: BinaryIO, panels: Mapping[str, Mapping[str, Series]]) -> None:
    """Draw line charts over training steps side by side, as a PNG: title → name → series."""
    with mpl.rc_context({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9}):
        figure = Figure(figsize=(4.5 * len(panels), 2.8), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)
        for axes, (title, series) in zip(grid[0], panels.items(), strict=True):
            colors = [f"C{i}" for i in range(len(series))]
            lines = _draw_curves(axes, [*series.values()], colors)
            axes.set_title(title)
            axes.set_xlabel("update")
            axes.legend(lines, [*series])
        figure.savefig(file, format="png", dpi=100)


def _draw_curves(axes: Axes, series: Sequence[Series], colors: Sequence[str]) -> list[Line2D]:
    """Draw values over steps; the y-axis ignores the first tenth, which would flatten the rest."""
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


def _svg(name: str, draw: Callable[[Axes], None], *, height: float = 2.4) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5, height), layout="constrained")
        draw(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return _for_page(stream.getvalue(), name)


def _for_page(svg: str, name: str) -> str:
    """The bare ``<svg>`` element, with colours from CSS and identifiers unique on the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, css in _CSS.items():
        svg = svg.replace(colour, css)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'role="img"', svg, count=1)


_WIDE_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans"]
"""Fonts tried in turn for each character of an image, if installed."""


def attention_image(
    file: BinaryIO,
    title: str,
    panels: Sequence[tuple[str, Sequence[Tensor], Sequence[str], Sequence[str]]],
) -> None:
    """Draws attention weights as a PNG, one panel below the other.

    ``panels`` are name, weights [H, T, S] of each layer, T query pieces and S key pieces.
    """
    pictures = [heat_map(layers, side=1, gap=1).numpy() for _, layers, _, _ in panels]
    fonts = mpl.font_manager.get_font_names()
    style: Any = {
        "text.parse_math": False,
        "font.size": 7,
        "axes.titlesize": 8,
        "font.family": [font for font in _WIDE_FONTS if font in fonts],
    }
    with mpl.rc_context(style):
        heights = [len(picture) for picture in pictures]
        inches = 0.13  # of a weight's square, which has a line of text beside it
        width = 1 + inches * max(picture.shape[1] for picture in pictures)
        height = 1 + inches * sum(heights) + len(heights)
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(title, fontsize=10)
        grid = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
        for axes, picture, (name, layers, queries, keys) in zip(
            grid[:, 0], pictures, panels, strict=True
        ):
            heads = len(layers[0])
            axes.imshow(picture, vmin=0, vmax=255, cmap="gray", aspect="auto")
            axes.set_title(f"{name}: layers 1–{len(layers)} downwards, heads 1–{heads} across")
            _label(axes.set_xticks, keys, heads, rotation=90)
            _label(axes.set_yticks, queries, len(layers))
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box, which is enough of a warning.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(file, format="png", dpi=110)


def _label(set_ticks: Callable[..., Any], pieces: Sequence[str], maps: int, **style: Any) -> None:
    """Labels every map of a row or column of maps, which are one square apart, with its pieces."""
    size = len(pieces) + 1
    places = [start + i for start in range(0, maps * size, size) for i in range(len(pieces))]
    set_ticks(places, [*pieces] * maps, **style)
