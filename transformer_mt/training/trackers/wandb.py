"""Weights & Biases, and Trackio, whose package has the same interface."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from transformer_mt.training.trackers import PROJECT, TrackedRun, Values


class WandbTracker:
    """Online if there is an API key, otherwise for ``wandb sync``.

    ``WANDB_…`` variables set project, mode and folder.
    """

    def __init__(self, run: TrackedRun):
        wandb: Any = import_module("wandb")
        entry = run.entry("wandb")
        arguments = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "name": os.environ.get("WANDB_NAME", run.folder.name),
            "id": entry,
            "resume": "allow",
            "dir": os.environ.get("WANDB_DIR", str(run.store("wandb"))),
            "settings": wandb.Settings(console="off", silent=True),
        }
        try:
            self._run = wandb.init(**arguments)
        except wandb.errors.UsageError as error:
            if "API key" not in str(error):
                raise
            self._run = wandb.init(**arguments, mode="offline")
        # Without it a step that is lower than an earlier one would be ignored.
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric="update")
        self._run.config.update(run.settings, allow_val_change=True)
        folder = Path(self._run.dir).parents[1]  # each start of a run adds a folder to it
        upload = f"offline; to upload it: wandb sync {folder}/*-{entry}"
        self.location = upload if self._run.offline else self._run.url

    def log(self, step: int, values: Values) -> None:
        """Adds to the curves and tables of these names."""
        self._run.log({**converted(values, "wandb"), "update": step})

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)


class TrackioTracker:
    """A local store, or a Space or server that Trackio's environment variables name.

    ``TRACKIO_DIR`` sets a store that several runs share. Trackio reads it only once, when it is
    imported: the runs of a sweep share the store of the first.
    """

    def __init__(self, run: TrackedRun):
        store = os.environ.setdefault("TRACKIO_DIR", str(run.store("trackio")))
        # Trackio finds a run to resume by its name only.
        self._run: Any = import_module("trackio").init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{run.folder.name}-{run.entry('trackio')}",
            resume="allow",
            config=run.settings,
            embed=False,
        )
        self.location = self._run.url or f"TRACKIO_DIR={store} trackio show"

    def log(self, step: int, values: Values) -> None:
        """Adds to the curves and tables of these names."""
        self._run.log(converted(values, "trackio"), step=step)

    def close(self, finished: bool) -> None:
        """Writes the rest."""
        self._run.finish()


def converted(values: Values, package: str) -> dict[str, Any]:
    """The values, with tables as objects of the package."""
    table = import_module(package).Table
    return {
        name: table(columns=value[0], data=value[1:]) if isinstance(value, list) else value
        for name, value in values.items()
    }
