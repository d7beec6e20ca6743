"""``metrics.jsonl``: what a run has recorded of its updates and validations."""

import json
from pathlib import Path
from typing import Any

from transformer_mt import run_layout


def read_records(run_dir: Path) -> list[dict[str, Any]]:
    """The records of a run, none if it has none; a line that a kill cut short is left out."""
    path = run_dir / run_layout.METRICS
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"step", "split"} <= record.keys():
            records.append(record)
    return records
