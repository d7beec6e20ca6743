"""``trackers=[wandb]`` and ``trackers=[trackio]``, two packages with one interface."""

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from transformer_mt.contrib.trackers import PROJECT
from transformer_mt.protocols import TrackedRun

log = logging.getLogger(__name__)


class WandbTracker:
    """Online if there is an API key, otherwise for ``wandb sync``.

    ``WANDB_…`` variables set project, name, mode and folder.
    """

    def __init__(self, run: TrackedRun):
        self._package = wandb = import_module("wandb")
        entry, get = run.entry(), os.environ.get
        has_key = wandb.login(prompt=False, verify=False)
        self._run: Any = wandb.init(
            project=get("WANDB_PROJECT", PROJECT),
            name=get("WANDB_NAME", run.name),
            dir=get("WANDB_DIR", str(run.folder)),
            mode=get("WANDB_MODE", "online" if has_key else "offline"),
            id=entry,
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.config.update(run.settings, allow_val_change=True)
        # Without it a step that is lower than an earlier one would be ignored.
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric="update")
        upload = f"offline; to upload it: wandb sync {Path(self._run.dir).parents[1]}/*-{entry}"
        log.info("wandb: %s", upload if self._run.offline else self._run.url)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves."""
        self._send(step, {f"{split}/{key}": value for key, value in values.items()})

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds a table, of column names and rows of text."""
        samples = self._package.Table(columns=table[0], data=table[1:])
        self._send(step, {"valid/translations": samples})

    def _send(self, step: int, values: dict[str, Any]) -> None:
        self._run.log({**values, "update": step})

    def close(self, finished: bool) -> None:
        """Writes the rest and marks the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)


class TrackioTracker(WandbTracker):
    """A local store, or a Space or server that Trackio's environment variables name.

    ``TRACKIO_DIR`` sets a store that several runs share. Trackio reads it only once, when it is
    imported: the runs of one process share the store of the first.
    """

    def __init__(self, run: TrackedRun):
        store = os.environ.setdefault("TRACKIO_DIR", str(run.folder))
        self._package = import_module("trackio")
        self._run = self._package.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{run.name}-{run.entry()}",  # by which alone a run is resumed
            resume="allow",
            config=run.settings,
            embed=False,
        )
        log.info("trackio: %s", self._run.url or f"TRACKIO_DIR={store} trackio show")

    def _send(self, step: int, values: dict[str, Any]) -> None:
        self._run.log(values, step=step)

    def close(self, finished: bool) -> None:
        """Writes the rest, through the package, which otherwise repeats it at exit and prints."""
        self._package.finish()
