"""Weights & Biases: online if there is an API key, otherwise recorded for ``wandb sync``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb
from PIL.Image import Image

from transformer_mt.training.trackers.tracker import PROJECT, TrackedRun


class WandbTracker:
    """Writes a run of Weights & Biases; ``WANDB_…`` variables set project, mode and folder."""

    def __init__(self, run: TrackedRun):
        try:
            self._run = self._init(run, None)
        except wandb.errors.UsageError as error:
            if "API key" not in str(error):
                raise
            self._run = self._init(run, "offline")
        # Without it a step that is lower than an earlier one would be ignored.
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric="update")
        self._run.config.update(run.settings, allow_val_change=True)
        folder = Path(self._run.dir).parents[1]  # each start of a run adds a folder to it
        self.location = (
            f"offline; to upload it: wandb sync {folder}/*-{run.entry}"
            if self._run.offline
            else self._run.url
        )

    @staticmethod
    def _init(run: TrackedRun, mode: str | None) -> "wandb.Run":
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", run.folder.name),
            id=run.entry,
            resume="allow",
            dir=os.environ.get("WANDB_DIR", str(run.store)),
            mode=mode,
            settings=wandb.Settings(console="off", silent=True),
        )

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        self._log(step, {f"{split}/{name}": value for name, value in values.items()})

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Adds a table of sources, references and translations."""
        columns = ["source", "reference", "translation"]
        table = wandb.Table(columns=columns, data=[list(sample) for sample in samples])
        self._log(step, {"valid/translations": table})

    def log_attention(self, step: int, maps: Mapping[str, Image], caption: str) -> None:
        """Adds one image for each kind of attention."""
        images = {k: wandb.Image(image, caption=caption) for k, image in maps.items()}
        self._log(step, {f"valid/attention_{kind}": image for kind, image in images.items()})

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds ``test/<metric>``, which the run's summary shows."""
        self._log(step, {f"test/{name}": score for name, score in scores.items()})

    def close(self, finished: bool) -> None:
        """Uploads the rest and marks the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)

    def _log(self, step: int, values: dict[str, object]) -> None:
        self._run.log({**values, "update": step})
