"""MLflow: a local database, or a server that ``MLFLOW_TRACKING_URI`` names."""

import csv
import io
import os
import re
import time

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from transformer_mt.training.trackers import PROJECT, TrackedRun, Values


class MlflowTracker:
    """Writes a run of MLflow; ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` are read."""

    def __init__(self, run: TrackedRun):
        store, entry, tag = run.store("mlflow"), run.entry("mlflow"), "transformer_mt.entry"
        uri = os.environ.get("MLFLOW_TRACKING_URI", local := f"sqlite:///{store}/mlflow.db")
        self._client = client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        files = (store / "artifacts").as_uri() if uri == local else None
        found = client.get_experiment_by_name(name)
        group = found.experiment_id if found else client.create_experiment(name, files)
        earlier = client.search_runs([group], f"tags.`{tag}` = '{entry}'")
        opened = earlier or [client.create_run(group, tags={tag: entry}, run_name=run.folder.name)]
        self._id: str = opened[0].info.run_id
        client.update_run(self._id, "RUNNING")
        if not earlier:  # 500 characters are what servers of all versions accept
            params = [Param(key, str(value)[:500]) for key, value in run.settings.items()]
            client.log_batch(self._id, params=params)
        page = f"{uri}/#/experiments/{group}/runs/{self._id}"
        self.location = page if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"

    def log(self, step: int, values: Values) -> None:
        """Adds points to curves in the background; tables are files."""
        metrics = []
        for name, value in values.items():
            if isinstance(value, list):
                table = io.StringIO()
                csv.writer(table, lineterminator="\n").writerows(value)
                self._client.log_text(self._id, table.getvalue(), f"translations/{step:08}.csv")
            else:
                key, now = re.sub(r"[^\w\-. /]", "_", name), int(time.time() * 1000)
                metrics.append(Metric(key, value, now, step))
        self._client.log_batch(self._id, metrics=metrics, synchronous=False)

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or killed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")
