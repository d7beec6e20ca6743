"""MLflow: a local database, or a server that ``MLFLOW_TRACKING_URI`` names."""

import csv
import io
import os
import re
import time
from collections.abc import Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from PIL.Image import Image

from transformer_mt.training.trackers import PROJECT, TrackedRun

_ENTRY_TAG = "transformer_mt.entry"
_MAX_PARAM = 500
"""Maximum number of characters of a parameter that all versions of the server accept."""


class MlflowTracker:
    """Writes a run of MLflow; ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` are read."""

    def __init__(self, run: TrackedRun):
        store = run.store("mlflow")
        local = f"sqlite:///{store}/mlflow.db"
        uri = os.environ.get("MLFLOW_TRACKING_URI", local)
        self._client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        if experiment := self._client.get_experiment_by_name(name):
            id_ = experiment.experiment_id
        else:
            files = (store / "artifacts").as_uri() if uri == local else None
            id_ = self._client.create_experiment(name, artifact_location=files)
        self._id: str = self._find_or_create(run, id_).info.run_id
        self._client.set_terminated(self._id, "RUNNING")
        self.location = (
            f"{uri}/#/experiments/{id_}/runs/{self._id}"
            if uri.startswith("http")
            else f"mlflow ui --backend-store-uri {uri}"
        )

    def _find_or_create(self, run: TrackedRun, experiment: str) -> Run:
        entry = run.entry("mlflow")
        earlier = self._client.search_runs([experiment], f"tags.`{_ENTRY_TAG}` = '{entry}'")
        if earlier:
            return earlier[0]
        tags = {_ENTRY_TAG: entry}
        created = self._client.create_run(experiment, tags=tags, run_name=run.folder.name)
        params = [Param(key, str(value)[:_MAX_PARAM]) for key, value in run.settings.items()]
        for start in range(0, len(params), 100):  # as many as a server accepts at once
            self._client.log_batch(created.info.run_id, params=params[start : start + 100])
        return created

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        now = int(time.time() * 1000)
        metrics = [
            Metric(re.sub(r"[^\w\-. /]", "_", f"{split}/{name}"), value, now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Adds a table of sources, references and translations as a file."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerows([("source", "reference", "translation"), *samples])
        self._client.log_text(self._id, table.getvalue(), f"translations/{step:08}.csv")

    def log_attention(self, step: int, pictures: Mapping[str, Image], caption: str) -> None:
        """Adds one image for each kind of attention, and a caption with the tokens."""
        for kind, image in pictures.items():
            self._client.log_image(self._id, image, f"attention/{step:08}_{kind}.png")
        self._client.log_text(self._id, caption, f"attention/{step:08}.txt")

    def close(self, finished: bool) -> None:
        """Marks the run as finished or killed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")
