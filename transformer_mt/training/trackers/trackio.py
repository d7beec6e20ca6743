"""Trackio: a local store, or a Space or server that its environment variables name."""

import os
from collections.abc import Mapping, Sequence

from PIL.Image import Image

from transformer_mt.training.trackers.tracker import PROJECT, TrackedRun


class TrackioTracker:
    """Writes a run of Trackio; ``TRACKIO_DIR`` sets a store that several runs share."""

    def __init__(self, run: TrackedRun):
        folder = os.environ.setdefault("TRACKIO_DIR", str(run.store))
        import trackio  # reads the variable when it is imported

        self._trackio = trackio
        # Trackio finds a run to resume by its name only.
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{run.folder.name}-{run.entry}",
            resume="allow",
            config=run.settings,
            embed=False,
        )
        self.location = self._run.url or f"TRACKIO_DIR={folder} trackio show"

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        self._run.log({f"{split}/{name}": value for name, value in values.items()}, step=step)

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Adds a table of sources, references and translations."""
        columns = ["source", "reference", "translation"]
        table = self._trackio.Table(columns=columns, data=[list(sample) for sample in samples])
        self._run.log({"valid/translations": table}, step=step)

    def log_attention(self, step: int, maps: Mapping[str, Image], caption: str) -> None:
        """Adds one image for each kind of attention."""
        images = {k: self._trackio.Image(image, caption=caption) for k, image in maps.items()}
        self._run.log({f"valid/attention_{kind}": i for kind, i in images.items()}, step=step)

    def log_final_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds ``test/<metric>``."""
        self._run.log({f"test/{name}": score for name, score in scores.items()}, step=step)

    def close(self, finished: bool) -> None:
        """Writes what is buffered."""
        self._run.finish()
