"""``metrics.jsonl``: one JSON object for each logged interval of training and each validation.

``final`` is the validation of the final model, if it is an average of checkpoints.
"""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_mt import run_layout
from transformer_mt.files import errors_naming, reading, sync, write_text
from transformer_mt.training.progress import TrainingState


class MetricsLog:
    """Appends records to ``metrics.jsonl``.

    Args:
        run_dir: Run folder.
        state: Progress so far. Records of later updates and validations, left by a run that was
            killed after its last checkpoint, are removed.
    """

    def __init__(self, run_dir: Path, state: TrainingState):
        self._path = run_dir / run_layout.METRICS
        # The validation of the latest update is recorded before its checkpoint knows of it.
        done = {"train": state.step, "valid": state.step - (state.metrics is None)}
        done["final"] = state.step - 1  # it is validated again
        text = ""
        for record in read_records(run_dir):
            if record["step"] <= done[record["split"]]:
                text += json.dumps(record) + "\n"
        write_text(self._path, text)

    def append(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Writes one record; numbers that are not finite become null, as JSON has no NaN.

        Args:
            split: ``train``, ``valid`` or ``final``.
            step: Number of updates done.
            values: Metrics by name.
        """
        record = {"step": step, "split": split, "time": time.time(), **values}
        for key, value in values.items():
            if not math.isfinite(value):
                record[key] = None
        with errors_naming(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        sync(self._path)  # a checkpoint may follow, which is resumed from after a power failure


def read_records(run_dir: Path) -> list[dict[str, Any]]:
    """All records of a run, without a truncated last line; empty if there is no file."""
    path = run_dir / run_layout.METRICS
    if not path.exists():
        return []
    remedy = "delete that line: training does not need it"
    with reading(path, remedy=remedy) as place, path.open(encoding="utf-8") as file:
        records = []
        for place.line, line in enumerate(file, 1):
            if line.endswith("\n"):
                records.append(json.loads(line))
        return records
