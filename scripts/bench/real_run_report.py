"""The report of ``real_run.py``: figures of each run, a Markdown table and a plot."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from reporting import heading, table, wrap

from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.training.metrics_log import read_records

Records = Sequence[Mapping[str, Any]]
Span = tuple[float, float]
POINTS = 60
"""Number of averages that a curve of tokens/s has."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""


class Interval(NamedTuple):
    """The updates between two training records."""

    end: float
    """Time of the record, in seconds since the epoch."""
    seconds: float
    """Time spent on updates; up to a common factor, if records have no number of tokens."""
    rate: float
    """Target tokens per second."""


def intervals(records: Records, spans: Sequence[Span] = ()) -> list[Interval]:
    """The logged intervals, without the first, which includes the start-up.

    mt-train logs rates but no numbers of tokens; its updates are taken to be equally large.
    Intervals in which the run was stopped, between its spans, are left out.
    """
    train = [r for r in records if r["split"] == "train"]
    found = []
    for before, record in pairwise(train):
        rate = record.get("tokens_per_second")
        stopped = any(before["time"] < start < record["time"] for start, _ in spans)
        if rate and not stopped:
            work = record.get("target_tokens", record["step"] - before["step"])
            found.append(Interval(record["time"], work / rate, rate))
    return found


def mean_rate(found: Sequence[Interval], start: float = 0.0, stop: float = 1.0) -> float:
    """Tokens per second between two shares of the training time; NaN without any records."""
    total = sum(interval.seconds for interval in found)
    tokens = seconds = passed = 0.0
    for interval in found:
        inside = min(passed + interval.seconds, stop * total) - max(passed, start * total)
        if inside > 0:
            tokens += inside * interval.rate
            seconds += inside
        passed += interval.seconds
    return tokens / seconds if seconds else float("nan")


@dataclass
class Run:
    """A run and what was measured of it; ``result.json`` in its folder."""

    name: str
    folder: Path
    plan: list[str]
    """What it runs, environment variables and overrides."""
    spans: list[Span] = field(default_factory=list)
    """When it was running, in seconds since the epoch."""
    samples: list[tuple[float, int, int, float]] = field(default_factory=list)
    """Time, PSS and RSS in bytes, and CPU seconds, of all its processes together."""
    end: str = ""
    """Why it ended; empty while it runs."""

    @classmethod
    def load(cls, folder: Path) -> "Run | None":
        """The run of a folder, if it has a result."""
        path = folder / "result.json"
        return cls(folder=folder, **json.loads(path.read_text())) if path.exists() else None

    def save(self) -> None:
        values = {key: value for key, value in asdict(self).items() if key != "folder"}
        write_text(self.folder / "result.json", json.dumps(values))

    @property
    def finished(self) -> bool:
        """Whether it needs no repetition: it ended in time, or by itself without an error."""
        return self.end in ("time limit", "ended with status 0")

    @property
    def records(self) -> Records:
        """Records of its log while it was running."""
        stop = self.spans[-1][1]
        return [r for r in read_records(self.folder / "run") if r["time"] <= stop]

    def minutes(self, moment: float) -> float:
        """Minutes that it had been running at a moment."""
        return sum(max(0.0, min(end, moment) - start) for start, end in self.spans) / 60

    def validations(self) -> list[tuple[float, float]]:
        """Minutes and negative log-likelihood per target token of each validation."""
        valid = [r for r in self.records if r["split"] == "valid"]
        return [(self.minutes(r["time"]), r["nll"]) for r in valid]

    def rates(self) -> list[Interval]:
        """Its intervals, at the minutes that it had been running."""
        found = intervals(self.records, self.spans)
        return [interval._replace(end=self.minutes(interval.end)) for interval in found]

    def rate_in(self, span: Span) -> float:
        """Tokens per second in one of its turns; NaN without a record in it."""
        found = intervals(self.records, self.spans)
        return mean_rate([interval for interval in found if span[0] < interval.end <= span[1]])

    def figures(self) -> dict[str, Any]:
        """Everything that is reported of it."""
        rates, records, last = self.rates(), self.records, self.samples[-1:]
        first_tenth, last_tenth = mean_rate(rates, 0, 0.1), mean_rate(rates, 0.9, 1)
        steps = [r["step"] for r in records]
        return {
            "name": self.name,
            "plan": self.plan,
            "end": self.end,
            "minutes": self.minutes(float("inf")),
            "updates": max(steps, default=0),
            "tokens_per_second": mean_rate(rates) if rates else None,
            "first_tenth": first_tenth if rates else None,
            "last_tenth": last_tenth if rates else None,
            "ratio": last_tenth / first_tenth if rates else None,
            "peak_pss": max((sample[1] for sample in self.samples), default=None),
            "peak_rss": max((sample[2] for sample in self.samples), default=None),
            "cores": last[0][3] / (60 * self.minutes(last[0][0])) if last else None,
            "validations": self.validations(),
            "rates": [[interval.end, interval.rate] for interval in rates],
        }


# The tables.


def report(runs: Sequence[Run], settings: Mapping[str, Any]) -> str:
    """A Markdown table of all runs with notes above it."""
    rows = [run.figures() for run in runs]
    best = [min(nll for _, nll in row["validations"]) for row in rows if row["validations"]]
    goal = max(best, default=float("nan"))
    head = [
        "run", "target tokens/s", "first tenth", "last tenth", "last ÷ first", "peak MiB",
        "cores busy", "updates", "best nll", f"min to nll {goal:.2f}", "end",
    ]  # fmt: skip
    lines = []
    for row in rows:
        reached = [minutes for minutes, nll in row["validations"] if nll <= goal]
        end = row["end"]
        if end != "time limit":
            end += f", {row['minutes']:.1f} min"
        lines.append(
            [
                row["name"],
                *rate_cells(row),
                "–" if row["peak_pss"] is None else f"{row['peak_pss'] / 2**20:,.0f}",
                cell(row["cores"], "{:.2f}"),
                f"{row['updates']:,}",
                cell(min((nll for _, nll in row["validations"]), default=None), "{:.3f}"),
                cell(min(reached, default=None), "{:.1f}"),
                end,
            ]
        )
    details = f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)"
    hidden = ("data", "max_steps")
    notes = [
        ", ".join(f"{key} {value}" for key, value in settings.items() if key not in hidden),
        "Target tokens without padding. Tenths of the training time, without validations, "
        "checkpoints and the first record, which includes the start-up. Memory: peak of all "
        "processes of the run, pages that they share counted once. Cores: CPU seconds ÷ seconds, "
        "from the start of the process. nll: per target token of the validation set; minutes "
        "include preparation, validations and checkpoints.",
    ]
    names = [f"{run.name}: {' '.join(run.plan)}" for run in runs]
    notes += [
        f"{run.name} ÷ {runs[0].name}, each of its turns ÷ those next to it: "
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}), median and "
        f"extremes of {len(ratios)} turns."
        for run in runs[1:]
        if (ratios := turn_ratios(run, runs[0]))
    ]
    return "\n".join([heading(details), *map(wrap, notes + names), "", table(head, lines)])


def turn_ratios(run: Run, other: Run) -> list[float]:
    """Tokens per second of a run ÷ those of another in the turns around; empty without turns.

    Where the speed of the machine changes from minute to minute, it does so for both.
    """
    ratios = []
    for start, end in run.spans:
        near = [
            rate
            for turn in other.spans
            if max(turn[0] - end, start - turn[1]) < (end - start) / 2
            and not math.isnan(rate := other.rate_in(turn))
        ]
        rate = run.rate_in((start, end))
        if near and not math.isnan(rate):
            ratios.append(rate / statistics.mean(near))
    return ratios


def read_folders(folders: Sequence[Path]) -> str:
    """A Markdown table of run folders of mt-train, from their ``metrics.jsonl`` alone."""
    lines = []
    for folder in folders:
        records = read_records(folder)
        rates = intervals(records)
        if not rates:
            raise InputError(f"{folder} has no metrics.jsonl with two training records")
        parts = mean_rate(rates), mean_rate(rates, 0, 0.1), mean_rate(rates, 0.9, 1)
        nll = min((r["nll"] for r in records if r["split"] == "valid"), default=None)
        row = dict(zip(("tokens_per_second", "first_tenth", "last_tenth"), parts, strict=True))
        row["ratio"] = parts[2] / parts[1]
        updates = f"{max(r['step'] for r in records):,}"
        lines.append([str(folder), *rate_cells(row), updates, cell(nll, "{:.3f}")])
    head = ["run", "target tokens/s", "first tenth", "last tenth", "last ÷ first", "updates"]
    return table([*head, "best nll"], lines)


def rate_cells(row: Mapping[str, float | None]) -> list[str]:
    rates = [cell(row[k], "{:,.0f}") for k in ("tokens_per_second", "first_tenth", "last_tenth")]
    return [*rates, cell(row["ratio"], "{:.2f}")]


def cell(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


# The plot.


def plot(runs: Sequence[Run], path: Path) -> None:
    """Tokens per second, memory, and validation loss over the minutes of each run, as a PNG."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels: list[Axes] = list(figure.subplots(1, 3))
    titles = ("Target tokens/s", "Memory, GiB", "Validation nll per target token")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel("minutes")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.5, alpha=0.5)
    for i, run in enumerate(runs):
        style: Any = {"color": COLOURS[i % len(COLOURS)], "label": run.name, "linewidth": 1.6}
        style["linestyle"] = ("-", "--", ":")[i // len(COLOURS) % 3]
        panels[0].plot(*smooth(run.rates()), **style)
        panels[1].plot(
            [run.minutes(sample[0]) for sample in run.samples],
            [sample[1] / 2**30 for sample in run.samples],
            **style,
        )
        minutes, nll = zip(*run.validations(), strict=True) if run.validations() else ((), ())
        panels[2].plot(minutes, nll, marker="o", markersize=3.5, **style)
    for axes in panels[:2]:
        axes.set_ylim(bottom=0)
    for axes in panels:
        axes.set_xlim(0, 1.02 * max((run.minutes(float("inf")) for run in runs), default=1.0))
    panels[0].yaxis.set_major_formatter(EngFormatter(sep=""))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, format="png", dpi=110)


def smooth(rates: Sequence[Interval]) -> tuple[list[float], list[float]]:
    """Minutes and tokens per second: averages over at most ``POINTS`` groups of intervals."""
    size = -(-len(rates) // POINTS) or 1
    groups = [rates[i : i + size] for i in range(0, len(rates), size)]
    return [group[-1].end for group in groups], [mean_rate(group) for group in groups]
