"""Results of the training runs in a folder, such as those of a sweep, as a table.

    python scripts/compare_runs.py FOLDER [FOLDER ...]

A row is a run: its settings that differ between the runs, its number of updates, the loss and
perplexity of the last validation, which is that of the final model if it is an average, the best
validation (of ``train.best_by``), and the scores of the test set.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from transformer_mt import run_layout
from transformer_mt.console import exit_status
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.training.metrics_log import read_records

IGNORED = ("run_dir", "cache_dir", "tokenizer_sha256")
"""Entries of ``config.yaml`` that say nothing about the recipe."""


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a configuration, ``model.dropout`` for example, with their values as text."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif prefix + key not in IGNORED:
            yield prefix + key, str(_without_nulls(value))


def _without_nulls(value: Any) -> Any:
    """A value with the fields that its data sources have, of all that sources may have."""
    if not isinstance(value, list):
        return value
    return [
        {key: each for key, each in item.items() if each is not None}
        if isinstance(item, dict)
        else item
        for item in value
    ]


def results(run: Path, best_by: str) -> dict[str, Any]:
    """The columns of a run, settings aside."""
    info = run / run_layout.RUN_INFO
    is_finished = info.exists() and json.loads(info.read_text("utf-8")).get("end")
    records = read_records(run)
    updates = max((record["step"] for record in records), default=0)
    columns: dict[str, Any] = {"updates": f"{updates}" if is_finished else f"{updates}, unfinished"}
    validations = [record for record in records if record["split"] != "train"]
    if validations:
        columns |= {f"valid {key}": validations[-1].get(key) for key in ("loss", "ppl")}
        scores = [record[best_by] for record in validations if record.get(best_by) is not None]
        best = min if best_by == "nll" else max
        columns[f"best valid {best_by}"] = best(scores, default=None)
    tested = read_scores(run / run_layout.TEST_SCORES) or []
    return columns | {f"test {score.label}": score.score for score in tested}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    runs = {
        path.parent: None
        for folder in folders
        for name in (run_layout.RUN_INFO, run_layout.METRICS)
        for path in sorted(folder.rglob(name))
    }
    configs = {
        run: dict(flat(yaml.safe_load((run / run_layout.CONFIG).read_text("utf-8"))))
        for run in sorted(runs)
    }
    if not configs:
        names = ", ".join(map(str, folders))
        raise InputError(f"no runs of mt-train in {names}: check the name")
    values = [*configs.values()]
    keys = dict.fromkeys(key for config in values for key in config)
    differing = [key for key in keys if len({config.get(key) for config in values}) > 1]
    rows = [
        {"run": run, **{key: config.get(key) for key in differing}}
        | results(run, config.get("train.best_by", "bleu"))
        for run, config in configs.items()
    ]
    text = range(1 + len(differing))  # columns of names and settings; the others are scores
    print(tabulate(rows, headers="keys", tablefmt="plain", floatfmt=".2f", disable_numparse=text))


if __name__ == "__main__":
    with exit_status("compare_runs.py"):
        main()
