"""``scripts/bench/real_run.py``: its figures, and its control of processes."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

real_run = importlib.import_module("real_run")
report = importlib.import_module("real_run_report")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="no /proc/PID/smaps_rollup"
)


# Figures.


def train_record(step: int, at: float, rate: float) -> dict[str, Any]:
    return {"step": step, "split": "train", "time": at, "tokens_per_second": rate}


def write_log(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    (folder / "run").mkdir(parents=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "run/metrics.jsonl").write_text(lines)


def test_tenths_of_the_training_time() -> None:
    seconds = np.random.default_rng(1).uniform(0.5, 2.5, 80)  # of 500 tokens each
    ends, rates = np.cumsum(seconds), 500 / seconds
    log = [train_record(5 * i, ends[i], rates[i]) for i in range(80)]
    found = report.intervals(log)  # without the first record, which has the start-up
    moments = np.linspace(ends[0], ends[-1], 1_000_001)[:-1]
    rate = rates[np.searchsorted(ends, moments, side="right")]
    for start, stop in ((0, 0.1), (0.9, 1), (0, 1)):
        part = rate[int(start * 1e6) : int(stop * 1e6)]
        assert report.mean_rate(found, start, stop) == pytest.approx(part.mean(), rel=1e-4)
    assert report.mean_rate(found) == pytest.approx(79 * 500 / sum(seconds[1:]))


def test_turns_of_other_runs_do_not_count(tmp_path: Path) -> None:
    run = report.Run("a", tmp_path, "mt-train", spans=[(100, 160), (1000, 1060)])
    assert run.minutes(130) == 0.5
    assert run.minutes(500) == 1
    assert run.minutes(1030) == 1.5
    times = (110, 120, 150, 1010, 1020, 2000)
    log = [train_record(i, time, 10.0) for i, time in enumerate(times, 1)]
    log.insert(3, {"step": 3, "split": "valid", "time": 1005, "nll": 2.5})
    write_log(tmp_path, log)
    # Neither the interval that contains the pause nor what was written after the end.
    assert [rate.end for rate in run.rates()] == pytest.approx([20 / 60, 50 / 60, 80 / 60])
    assert run.validations() == [(pytest.approx(65 / 60), 2.5)]


def test_runs_are_compared_in_neighbouring_turns(tmp_path: Path) -> None:
    machine = [100.0, 50.0, 200.0]  # its speed in three minutes
    runs = []
    for name, start, share in (("old", 0, 1.0), ("new", 30, 0.9)):
        spans = [(minute + start, minute + start + 30) for minute in (0.0, 60.0, 120.0)]
        # "new" has no record in its last turn.
        moments = [(span[0] + at, rate) for span, rate in zip(spans, machine, strict=True)
                   for at in (5, 15, 25) if (name, rate) != ("new", 200.0)]  # fmt: skip
        log = [train_record(i, at, share * rate) for i, (at, rate) in enumerate(moments, 1)]
        write_log(tmp_path / name, log)
        runs.append(report.Run(name, tmp_path / name, "mt-train", spans=spans))
    old, new = runs
    # A turn of "new" lies between two of "old".
    assert report.turn_ratios(new, old) == pytest.approx([90 / 75, 45 / 125])
    assert report.turn_ratios(old, new) == pytest.approx([100 / 90, 50 / 67.5, 200 / 45])


# Runs.
