"""Checkpoints of a run: restored, written in the background, pruned, made into the final model."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.checkpoint import Checkpoint, Tensors
from transformer_mt.config import TrainJob
from transformer_mt.distributed.world import World
from transformer_mt.errors import InputError
from transformer_mt.files import delete_folder
from transformer_mt.kernels.hardware import background_thread
from transformer_mt.training.progress import TrainingState

log = logging.getLogger(__name__)

_MIN_KEPT = 2
"""Regular checkpoints kept at least: if the latest is damaged, the one before it is used."""


class CheckpointManager:
    """Reads and writes the checkpoints of a run; only the main rank needs to see its folder.

    They are written in a background thread, one at a time. All ranks call the methods.

    Args:
        job: Run folder, how many checkpoints to keep, and how to make the final model of them.
        world: Ranks that share the run.

    Attributes:
        is_resuming: Whether earlier starts have left a valid checkpoint, on every rank.
        model_steps: Updates whose weights the model in the run folder is made of.
    """

    def __init__(self, job: TrainJob, world: World):
        self._run_dir, self._config = Path(job.run_dir), job.train
        self._warmup_steps, self._world = job.schedule.warmup_steps, world
        # Oldest first; none on ranks other than the main one.
        self._checkpoints = ckpt.valid_checkpoints(self._run_dir) if world.is_main else []
        self.is_resuming = world.broadcast_object(bool(self._checkpoints))
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self.model_steps: list[int] = []

    def restore(self, live: Tensors) -> TrainingState:
        """Restores all ranks from the latest checkpoint, if there is one.

        The data and the dropout masks need no state: those of an update are functions of its number
        (``BatchPlan``, ``Trainer._step``).

        Args:
            live: All tensors that training changes (``TrainStep.tensors``).

        Returns:
            The training state.

        Raises:
            InputError: There is a model, which a new one would replace, but no checkpoint of it.
        """
        state = TrainingState()
        if self._checkpoints:
            latest = self._checkpoints[-1]
            ckpt.restore(latest, live)
            state = TrainingState(**latest.state)
        elif self._world.is_main and (self._run_dir / run_layout.WEIGHTS).exists():
            raise InputError(
                f"{self._run_dir} contains a model but no intact checkpoint to resume from: "
                "choose a different run_dir, or delete that folder"
            )
        for tensors in live.values():
            self._world.broadcast(tensors.values())
        return self._world.broadcast_object(state)

    def save(self, state: TrainingState, live: Tensors) -> None:
        """Copies the tensors and starts to write a checkpoint in the background.

        Raises:
            OSError: The previous checkpoint could not be written.
        """
        if not self._world.is_main:
            return
        self.wait()
        self._thread = self._thread or background_thread("checkpoint")
        self._pending = self._thread.submit(self._save, asdict(state), ckpt.snapshot(live))

    def record_validation(self, state: TrainingState) -> None:
        """Stores the state after the validation of the latest checkpoint in it."""
        if not self._world.is_main:
            return
        self.wait()
        self._checkpoints[-1] = ckpt.update_state(self._checkpoints[-1], asdict(state))
        if self._config.final == "best" and state.best_step == state.step:
            self._write_model(state.best_step)

    def wait(self) -> None:
        """Waits until the checkpoint is written.

        Raises:
            OSError: It could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def check(self) -> None:
        """Raises ``OSError`` if writing has failed; never waits."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def finish(self, state: TrainingState) -> dict[str, Tensor]:
        """Writes the final model to the run folder; returns its weights, on the main rank."""
        if not self._world.is_main:
            return {}
        self.wait()
        weights = self._write_model(state.best_step)
        updates = ", ".join(f"{step:,}" for step in self.model_steps)
        if self._config.final == "average":
            updates += f" ({len(self.model_steps)} of {self._config.average_checkpoints})"
        log.info("the final model is made from the checkpoints of updates: %s", updates)
        return weights

    def close(self) -> None:
        """Waits for the background thread, whether or not it succeeds."""
        if self._thread:
            self._thread.shutdown()

    def _save(self, state: dict[str, Any], tensors: Tensors) -> None:
        saved = ckpt.save_checkpoint(self._run_dir, state, tensors)
        earlier = [c for c in self._checkpoints if c.step < saved.step and c.path.exists()]
        self._checkpoints = [*earlier, saved]
        self._write_model(state["best_step"])
        self._prune(state["best_step"])

    def _prune(self, best_step: int) -> None:
        """Deletes all but the latest checkpoint, the latest regular ones, and the best."""
        regular = self._regular()[-max(_MIN_KEPT, self._config.average_checkpoints) :]
        kept_steps = {c.step for c in (*regular, self._checkpoints[-1])} | {best_step}
        for checkpoint in self._checkpoints:
            if checkpoint.step not in kept_steps:
                delete_folder(checkpoint.path)
        self._checkpoints = [c for c in self._checkpoints if c.step in kept_steps]

    def _model_checkpoints(self, best_step: int) -> list[Checkpoint]:
        """The checkpoints whose average is the final model, without damaged and deleted ones."""
        latest = self._checkpoints[-1]
        if self._config.final == "best":
            return [c for c in self._checkpoints if c.step == best_step] or [latest]
        place = latest.state["num_regular"] + (not latest.state["is_regular"])
        first = place - self._config.average_checkpoints + 1
        averaged = [c for c in self._regular() if first <= c.state["num_regular"] < place]
        return [*(c for c in averaged if c.step >= self._warmup_steps), latest]

    def _regular(self) -> list[Checkpoint]:
        """The checkpoints that may be averaged, oldest first."""
        return [checkpoint for checkpoint in self._checkpoints if checkpoint.state["is_regular"]]

    def _write_model(self, best_step: int) -> dict[str, Tensor]:
        """Writes the weights of the model folder."""
        used = self._model_checkpoints(best_step)
        self.model_steps = [checkpoint.step for checkpoint in used]
        weights = ckpt.average(used)
        ckpt.save_tensors(weights, self._run_dir / run_layout.WEIGHTS)
        return weights
