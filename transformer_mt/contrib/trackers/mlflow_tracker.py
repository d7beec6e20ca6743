"""``trackers=[mlflow]``."""

import csv
import io
import logging
import os
import re
from collections.abc import Mapping
from importlib import import_module

from transformer_mt.contrib.trackers import PROJECT
from transformer_mt.protocols import TrackedRun

log = logging.getLogger(__name__)


class MlflowTracker:
    """Writes a run of MLflow; ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` are read."""

    def __init__(self, run: TrackedRun):
        mlflow = import_module("mlflow")
        folder, entry, tag = run.folder, run.entry(), "transformer_mt.entry"
        uri = os.environ.get("MLFLOW_TRACKING_URI", local := f"sqlite:///{folder}/mlflow.db")
        self._client = client = mlflow.MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        files = (folder / "artifacts").as_uri() if uri == local else None
        found = client.get_experiment_by_name(name)
        group = found.experiment_id if found else client.create_experiment(name, files)
        runs = client.search_runs([group], f"tags.`{tag}` = '{entry}'")
        if not runs:
            runs = [client.create_run(group, tags={tag: entry}, run_name=run.name)]
            # 500 characters are what servers of all versions accept.
            params = [mlflow.entities.Param(k, str(v)[:500]) for k, v in run.settings.items()]
            client.log_batch(runs[0].info.run_id, params=params)
        self._id: str = runs[0].info.run_id
        client.update_run(self._id, "RUNNING")
        page = f"{uri}/#/experiments/{group}/runs/{self._id}"
        view = page if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"
        log.info("mlflow: %s", view)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves in the background."""
        for name, value in values.items():
            key = re.sub(r"[^\w\-. /]", "_", f"{split}/{name}")
            self._client.log_metric(self._id, key, value, step=step, synchronous=False)

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Writes a file with a table, of column names and rows of text."""
        csv.writer(file := io.StringIO(), lineterminator="\n").writerows(table)
        self._client.log_text(self._id, file.getvalue(), f"translations/{step:08}.csv")

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or killed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")
