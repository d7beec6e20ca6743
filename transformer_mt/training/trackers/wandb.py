"""Weights & Biases, and Trackio, whose package has the same interface."""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL.Image import Image

from transformer_mt.training.trackers import PROJECT, TrackedRun


class _Tracker:
    """Records a run with one of the two packages.

    Args:
        package: Its module.
        run: What its ``init`` returned.
        location: Address or command that shows the run.
    """

    def __init__(self, package: Any, run: Any, location: str):
        self._package, self._run, self.location = package, run, location

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        self._log(step, {f"{split}/{name}": value for name, value in values.items()})

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Adds a table of sources, references and translations."""
        columns = ["source", "reference", "translation"]
        table = self._package.Table(columns=columns, data=[list(sample) for sample in samples])
        self._log(step, {"valid/translations": table})

    def log_attention(self, step: int, pictures: Mapping[str, Image], caption: str) -> None:
        """Adds one image for each kind of attention."""
        images = {k: self._package.Image(image, caption=caption) for k, image in pictures.items()}
        self._log(step, {f"valid/attention_{kind}": image for kind, image in images.items()})

    def _log(self, step: int, values: Mapping[str, object]) -> None:
        self._run.log(values, step=step)


class WandbTracker(_Tracker):
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
            opened = wandb.init(**arguments)
        except wandb.errors.UsageError as error:
            if "API key" not in str(error):
                raise
            opened = wandb.init(**arguments, mode="offline")
        # Without it a step that is lower than an earlier one would be ignored.
        opened.define_metric("update", hidden=True)
        opened.define_metric("*", step_metric="update")
        opened.config.update(run.settings, allow_val_change=True)
        folder = Path(opened.dir).parents[1]  # each start of a run adds a folder to it
        upload = f"offline; to upload it: wandb sync {folder}/*-{entry}"
        super().__init__(wandb, opened, upload if opened.offline else opened.url)

    def _log(self, step: int, values: Mapping[str, object]) -> None:
        self._run.log({**values, "update": step})

    def close(self, finished: bool) -> None:
        """Uploads the rest and marks the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)


class TrackioTracker(_Tracker):
    """A local store, or a Space or server that Trackio's environment variables name.

    ``TRACKIO_DIR`` sets a store that several runs share. Trackio reads it only once, when it is
    imported: the runs of a sweep share the store of the first.
    """

    def __init__(self, run: TrackedRun):
        store = os.environ.setdefault("TRACKIO_DIR", str(run.store("trackio")))
        trackio: Any = import_module("trackio")
        # Trackio finds a run to resume by its name only.
        opened = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{run.folder.name}-{run.entry('trackio')}",
            resume="allow",
            config=run.settings,
            embed=False,
        )
        super().__init__(trackio, opened, opened.url or f"TRACKIO_DIR={store} trackio show")

    def close(self, finished: bool) -> None:
        """Writes what is buffered."""
        self._run.finish()
