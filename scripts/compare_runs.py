"""Results of the training runs in a folder, such as those of a sweep, as a table.

    python scripts/compare_runs.py FOLDER [FOLDER ...]

A row is a run: the best validation (of ``train.best_by``) and the scores of the test set.
"""

import argparse
import sys
from pathlib import Path

from tabulate import tabulate

from transformer_mt import run_layout
from transformer_mt.evaluation.scores import read_scores
from transformer_mt.files import read_json


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders, rows = parser.parse_args().folders, []
    for folder in folders:
        for info in sorted(folder.rglob(run_layout.RUN_INFO)):
            try:
                best = (read_json(info, {"starts": list}).get("end") or {}).get("best") or {}
            except (OSError, ValueError) as error:
                print(f"compare_runs.py: warning: cannot read {info}: {error}", file=sys.stderr)
                best = {}
            row = {"run": info.parent}
            if best:
                row[f"best valid {best.get('metric', '')}"] = best.get("score")
            tested = read_scores(info.parent / run_layout.TEST_SCORES) or []
            rows.append(row | {f"test {score.label}": score.score for score in tested})
    if not rows:
        names = ", ".join(map(str, folders))
        sys.exit(f"compare_runs.py: error: no runs of mt-train in {names}: check the name")
    print(tabulate(rows, headers="keys", tablefmt="plain", floatfmt=".2f"))


if __name__ == "__main__":
    main()
