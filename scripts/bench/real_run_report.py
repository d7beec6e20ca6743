"""The report of ``real_run.py``: figures of each run, and a Markdown table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from shared import heading, table, wrap

from transformer_mt.training.metrics_log import read_records

Records = Sequence[Mapping[str, Any]]
Span = tuple[float, float]


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
    """A run and what was measured of it."""

    name: str
    folder: Path
    what: str
    """What it runs, with its overrides."""
    spans: list[Span] = field(default_factory=list)
    """When it was running, in seconds since the epoch."""
    samples: list[tuple[float, int, float]] = field(default_factory=list)
    """Time, memory in bytes, and CPU seconds, of all its processes together."""
    end: str = ""
    """Why it ended; empty while it runs."""

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
        return {
            "name": self.name,
            "what": self.what,
            "end": self.end,
            "minutes": self.minutes(math.inf),
            "updates": max((record["step"] for record in records), default=0),
            "tokens_per_second": mean_rate(rates) if rates else None,
            "first_tenth": mean_rate(rates, 0, 0.1) if rates else None,
            "last_tenth": mean_rate(rates, 0.9, 1) if rates else None,
            "peak_memory": max((memory for _, memory, _ in self.samples), default=None),
            "cores": last[0][2] / (60 * self.minutes(last[0][0])) if last else None,
            "validations": self.validations(),
            "rates": [[interval.end, interval.rate] for interval in rates],
        }


# The table.


def report(runs: Sequence[Run], settings: str) -> str:
    """A Markdown table of all runs with notes above it."""
    rows = [run.figures() for run in runs]
    best = [min(nll for _, nll in row["validations"]) for row in rows if row["validations"]]
    goal = max(best, default=math.nan)
    head = [
        "run", "target tokens/s", "first tenth", "last tenth", "peak MiB",
        "cores busy", "updates", "best nll", f"min to nll {goal:.2f}", "end",
    ]  # fmt: skip
    lines = []
    for row in rows:
        reached = [minutes for minutes, nll in row["validations"] if nll <= goal]
        memory = row["peak_memory"]
        lines.append(
            [
                row["name"],
                cell(row["tokens_per_second"], "{:,.0f}"),
                cell(row["first_tenth"], "{:,.0f}"),
                cell(row["last_tenth"], "{:,.0f}"),
                cell(None if memory is None else memory / 2**20, "{:,.0f}"),
                cell(row["cores"], "{:.2f}"),
                f"{row['updates']:,}",
                cell(min((nll for _, nll in row["validations"]), default=None), "{:.3f}"),
                cell(min(reached, default=None), "{:.1f}"),
                f"{row['end']}, {row['minutes']:.1f} min",
            ]
        )
    notes = [
        f"{settings}. Target tokens without padding. Tenths of the training time, without "
        "validations, checkpoints and the first record, which includes the start-up. Memory: peak "
        "of all processes of the run, pages that they share counted once. Cores: CPU seconds ÷ "
        "seconds, from the start of the process. nll: per target token of the validation set; "
        "minutes include preparation, validations and checkpoints.",
        *(f"{run.name}: {run.what}" for run in runs),
    ]
    notes += [
        f"{run.name} ÷ {runs[0].name}, each of its turns ÷ those next to it: "
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}), median and "
        f"extremes of {len(ratios)} turns."
        for run in runs[1:]
        if (ratios := turn_ratios(run, runs[0]))
    ]
    return "\n".join([heading(), *map(wrap, notes), "", table(head, lines)])


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


def cell(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
