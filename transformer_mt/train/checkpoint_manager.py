"""The checkpoints of a run: written beside training, pruned, and made into the model folder."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.checkpoint import Checkpoint, Snapshot
from transformer_mt.config import TrainConfig
from transformer_mt.errors import InputError
from transformer_mt.train.stopping import StoppingCriteria
from transformer_mt.train.training_state import TrainingState

log = logging.getLogger(__name__)


class CheckpointManager:
    """Writes checkpoints in a thread; only the main rank has one.

    At most one is in writing: whoever comes with the next waits for it.

    Args:
        run_dir: Folder of the run.
        config: Which checkpoints make the final model, and how many are kept.
        limits: The run's intervals.
        found: The whole checkpoints that are there, oldest first.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        limits: StoppingCriteria,
        found: Sequence[Checkpoint],
    ):
        self._run_dir, self._config, self._limits = run_dir, config, limits
        self._found = list(found)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, at: TrainingState, snapshot: Snapshot) -> None:
        """Begins to write a checkpoint.

        Raises:
            InputError: The one before could not be written.
        """
        self.wait()
        self._writing = self._thread.submit(self._save, at.to_state(), at.best_step, snapshot)

    def validated(self, at: TrainingState, values: dict[str, float]) -> None:
        """Notes the validation of the latest checkpoint in it, once it is written."""
        self.wait()
        with self._explained():
            ckpt.write_validation(self._found[-1], values)
            if self._config.final == "best" and at.best_step == at.step:
                self._publish(at.best_step)

    def tidy(self) -> None:
        """Deletes what a kill right after the latest checkpoint was written left to delete."""
        with self._explained():
            self._prune(int(self._found[-1].state["best_step"]))

    def wait(self) -> None:
        """Until the checkpoint in writing is there.

        Raises:
            InputError: It could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            with self._explained():
                writing.result()

    def check(self) -> None:
        """``wait``, but only for one that is done or failed already."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def finish(self, at: TrainingState) -> dict[str, Tensor]:
        """The weights of the final model, which are in the model folder then."""
        self.wait()
        with self._explained():
            weights = self._publish(at.best_step)
            log.info("the model is %s", self._origin(at))
            return weights

    def close(self) -> None:
        """Waits for what is in writing, whatever comes of it."""
        self._thread.shutdown()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot write a checkpoint into {self._run_dir}: {reason}; mend this, then the "
                "same command goes on from the checkpoint before"
            ) from None

    def _save(self, state: dict[str, Any], best_step: int, snapshot: Snapshot) -> None:
        saved = ckpt.save_checkpoint(self._run_dir, state, snapshot)
        self._found = [*(c for c in self._found if c.step < saved.step), saved]
        self._publish(best_step)
        self._prune(best_step)

    def _prune(self, best_step: int) -> None:
        # Two at least: were the newest damaged, the one before it is there.
        keep = {c.step for c in self._averaged()[-max(2, self._config.average_checkpoints) :]}
        keep |= {self._found[-1].step, best_step}
        for stale in self._found:
            if stale.step not in keep:
                ckpt.delete(stale.path)
        self._found = [c for c in self._found if c.step in keep]

    def _averaged(self) -> list[Checkpoint]:
        return [c for c in self._found if self._limits.is_averaged(c.step)]

    def _chosen(self, best_step: int) -> list[Checkpoint]:
        """Whose average is the model: the last ones, or the best; the newest where that is gone."""
        newest = self._found[-1]
        if self._config.final == "best":
            return [c for c in self._found if c.step == best_step] or [newest]
        older = [c for c in self._averaged() if c is not newest]
        return [*older, newest][-self._config.average_checkpoints :]

    def _origin(self, at: TrainingState) -> str:
        """What the model was made of."""
        if self._config.final == "ema":
            return "the running mean of the weights"
        steps = [checkpoint.step for checkpoint in self._chosen(at.best_step)]
        if self._config.final == "best":
            by = {"bleu": "BLEU", "nll": "perplexity"}[self._config.best_by]
            of = f"the checkpoint of update {steps[0]:,}"
            best = f"the best by {by}"
            gone = f"the newest: {best}, of update {at.best_step:,}, is gone"
            return f"{of}, {best if steps[0] == at.best_step else gone}"
        written = sum(map(self._limits.is_averaged, range(1, at.step + 1)))
        fewer = len(steps) < min(self._config.average_checkpoints, written)
        of = f"the checkpoint of update {steps[-1]:,}"
        if len(steps) > 1:
            of = (
                f"the average of {len(steps)} checkpoints, of updates {steps[0]:,} to {steps[-1]:,}"
            )
        return of + (": older ones are gone" if fewer else "")

    def _publish(self, best_step: int) -> dict[str, Tensor]:
        """Writes the model folder's weights."""
        if self._config.final == "ema":
            weights = ckpt.running_mean(self._found[-1])
        else:
            weights = ckpt.mean(self._chosen(best_step))
        ckpt.save_tensors(weights, self._run_dir / run_layout.WEIGHTS)
        return weights
