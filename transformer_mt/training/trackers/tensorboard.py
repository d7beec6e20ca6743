"""TensorBoard: curves, sample translations, attention maps, and final scores of a run."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from PIL.Image import Image
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from transformer_mt import run_layout
from transformer_mt.training.trackers import TrackedRun


class TensorBoardTracker:
    """Writes TensorBoard event files; events after the run's ``steps_done`` are purged."""

    location = ""
    """Address or command that shows the run, for the log; may be empty."""

    def __init__(self, run: TrackedRun):
        folder = run.folder / run_layout.TENSORBOARD
        self._settings = run.settings
        self._writer = SummaryWriter(str(folder), purge_step=run.steps_done + 1)

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        points = {f"{split}/{name}": value for name, value in values.items()}
        if split == "test":  # with the hyper-parameters, for the HPARAMS tab to compare runs
            # SummaryWriter.add_hparams would create a subfolder, which is shown as another run.
            for summary in hparams(self._settings, points):
                # torch's types know it as None only
                self._writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]
        for name, value in points.items():
            self._writer.add_scalar(name, value, step)
        # Not by SummaryWriter's timer: a killed run resumes from a checkpoint and never logs the
        # steps before it again.
        self._writer.flush()

    def log_samples(self, step: int, samples: Sequence[Sequence[str]]) -> None:
        """Adds a table of sources, references and translations."""
        lines = ["| source | reference | translation |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(map(_escape, sample))} |" for sample in samples]
        self._writer.add_text("valid/translations", "\n".join(lines), step)
        self._writer.flush()

    def log_attention(self, step: int, pictures: Mapping[str, Image], caption: str) -> None:
        """Adds one image for each kind of attention, and a caption with the tokens."""
        for kind, image in pictures.items():
            pixels = np.asarray(image)
            self._writer.add_image(f"valid/attention_{kind}", pixels, step, dataformats="HW")
        self._writer.add_text("valid/attention", _escape(caption), step)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Flushes and closes the event file."""
        self._writer.close()


def _escape(text: str) -> str:
    """Escapes all punctuation, so that Markdown renders the text literally, also in a table."""
    return re.sub(r"[!-/:-@[-`{-~]", lambda sign: f"&#{ord(sign[0])};", text)
