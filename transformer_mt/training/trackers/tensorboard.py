"""TensorBoard: curves, sample translations, and final scores of a run."""

import re
from dataclasses import asdict

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.training.trackers import TrackedRun, Values

_GROUPS = {
    **dict.fromkeys(("train/data_wait", "train/mfu", "train/tokens_per_second"), "wall_clock"),
    **dict.fromkeys(("train/grad_norm", "train/lr", "train/skipped"), "weight_updates"),
}
"""Groups of curves that follow ``train`` and ``valid`` in the alphabet: TensorBoard opens on loss,
perplexity and validation scores."""


class TensorBoardTracker:
    """Writes TensorBoard event files; events after the run's ``steps_done`` are purged."""

    location = ""
    """Address or command that shows the run, for the log; may be empty."""

    def __init__(self, run: TrackedRun):
        defaults = dotted(asdict(TrainJob()))
        self._settings = {
            key: value
            for key, value in run.settings.items()
            if str(value) != str(defaults.get(key)) and key not in ("cache_dir", "run_dir")
        }
        folder = str(run.folder / run_layout.TENSORBOARD)
        # Flushed soon: a killed run resumes from a checkpoint and never logs the steps before it.
        self._writer = SummaryWriter(folder, purge_step=run.steps_done + 1, flush_secs=1)

    def log(self, step: int, values: Values) -> None:
        """Adds to the curves and tables of these names."""
        scores = {}
        for name, value in values.items():
            group, _, key = name.partition("/")
            if isinstance(value, list):
                rows = [" | ".join(map(_escape, row)) for row in value]
                rows.insert(1, "--- | --- | ---")
                self._writer.add_text(name, "\n".join(f"| {row} |" for row in rows), step)
            elif group == "test":  # a single point is no curve
                scores[f"{key} (test)"] = value
            else:
                self._writer.add_scalar(f"{_GROUPS.get(name, group)}/{key}", value, step)
        if scores:  # first columns of the tab HPARAMS, whose own metrics would have to be curves
            # SummaryWriter.add_hparams would create a subfolder, which is shown as another run.
            for summary in hparams({**scores, **self._settings}, {}):
                # torch's types know it as None only
                self._writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]

    def close(self, finished: bool) -> None:
        """Flushes and closes the event file."""
        self._writer.close()


def _escape(text: str) -> str:
    """Escapes all punctuation, so that Markdown renders the text literally, also in a table."""
    return re.sub(r"[!-/:-@[-`{-~]", lambda sign: f"&#{ord(sign[0])};", text)
