"""TensorBoard: curves, sample translations, and final scores of a run."""

from collections.abc import Mapping
from pathlib import Path
from string import punctuation

from torch.utils.tensorboard import SummaryWriter

from transformer_mt import run_layout
from transformer_mt.config import TrainJob
from transformer_mt.training.trackers import flat_settings

_GROUPS = {
    **dict.fromkeys(("data_wait", "mfu", "tokens_per_second"), "wall_clock"),
    **dict.fromkeys(("grad_norm", "lr", "skipped"), "weight_updates"),
}
"""Groups of curves that follow ``train`` and ``valid`` in the alphabet: TensorBoard opens on loss,
perplexity and validation scores."""
_LITERAL = {ord(sign): f"&#{ord(sign)};" for sign in punctuation}
"""For ``str.translate``: Markdown then renders the text as it is, also in a table."""


class TensorBoardTracker:
    """Writes TensorBoard event files; events after ``steps_done`` updates are purged."""

    def __init__(self, job: TrainJob, steps_done: int):
        usual = flat_settings(TrainJob(run_dir=job.run_dir, cache_dir=job.cache_dir))
        self._settings = {k: x for k, x in flat_settings(job).items() if x != usual.get(k)}
        folder = str(Path(job.run_dir) / run_layout.TENSORBOARD)
        # Flushed soon: a killed run resumes from a checkpoint and never logs the steps before it.
        self._writer = SummaryWriter(folder, purge_step=steps_done + 1, flush_secs=1)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to curves; scores of ``test`` are columns of the tab HPARAMS instead."""
        if split == "test":  # not that tab's own metrics, which have to be curves
            scores = {f"{key} (test)": value for key, value in values.items()}
            # In this folder: a subfolder would be shown as another run.
            self._writer.add_hparams({**scores, **self._settings}, {}, run_name=".")
            return
        for key, value in values.items():
            self._writer.add_scalar(f"{_GROUPS.get(key, split)}/{key}", value, step)

    def log_samples(self, step: int, table: list[list[str]]) -> None:
        """Adds a table, of column names and rows of text."""
        names, *rows = [" | ".join(cell.translate(_LITERAL) for cell in row) for row in table]
        lines = [names, "--- | --- | ---", *rows]
        self._writer.add_text("valid/translations", "\n".join(f"| {x} |" for x in lines), step)

    def close(self, finished: bool) -> None:
        """Writes the rest; other trackers also record whether the run has finished."""
        self._writer.close()
