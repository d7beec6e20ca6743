"""Checkpoints of a run: written in the background, pruned, and made into the final model."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from transformer_mt import checkpoint as ckpt
from transformer_mt import run_layout
from transformer_mt.checkpoint import Checkpoint, Snapshot
from transformer_mt.config import TrainConfig
from transformer_mt.errors import InputError
from transformer_mt.files import delete_folder
from transformer_mt.kernels.hardware import background_thread
from transformer_mt.training.stopping import StoppingCriteria
from transformer_mt.training.training_state import TrainingState

log = logging.getLogger(__name__)

_MIN_KEPT = 2
"""Checkpoints kept at least: if the latest is damaged, the one before it is used."""


class CheckpointManager:
    """Writes checkpoints in a background thread, one at a time; only the main rank has one.

    Args:
        run_dir: Run folder.
        config: How many checkpoints to keep, and how to make the final model of them.
        criteria: Which checkpoints are averaged.
        found: Valid checkpoints of the run, oldest first.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        criteria: StoppingCriteria,
        found: Sequence[Checkpoint],
    ):
        self._run_dir, self._config, self._criteria = run_dir, config, criteria
        self._checkpoints = list(found)
        self._thread = background_thread("checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self, state: TrainingState, model: nn.Module, optimizer_state: dict[str, Tensor]
    ) -> None:
        """Copies the tensors and starts to write a checkpoint in the background.

        Raises:
            InputError: The previous checkpoint could not be written.
        """
        self.wait()
        snapshot = ckpt.snapshot(model, optimizer_state)
        self._pending = self._thread.submit(self._save, state.to_json(), state.best_step, snapshot)

    def record_validation(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Stores the metrics of the latest checkpoint's validation in it."""
        self.wait()
        with self._explain_errors():
            ckpt.write_validation(self._checkpoints[-1], metrics)
            if self._config.final == "best" and state.best_step == state.step:
                self._write_model(state.best_step)

    def prune_leftovers(self) -> None:
        """Prunes the checkpoints of a run that was killed between saving and pruning."""
        with self._explain_errors():
            self._prune(int(self._checkpoints[-1].state["best_step"]))

    def wait(self) -> None:
        """Waits until the checkpoint is written.

        Raises:
            InputError: It could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            with self._explain_errors():
                pending.result()

    def check(self) -> None:
        """Raises ``InputError`` if writing has failed; never waits."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def finish(self, state: TrainingState) -> dict[str, Tensor]:
        """Writes the final model's weights to the model folder and returns them."""
        self.wait()
        with self._explain_errors():
            weights = self._write_model(state.best_step)
            log.info("the final model is %s", self._describe_model(state))
            return weights

    def close(self) -> None:
        """Waits for the background thread, whether or not it succeeds."""
        self._thread.shutdown()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot write a checkpoint into {self._run_dir}: {reason}; fix this and run the "
                "same command to resume from the previous checkpoint"
            ) from None

    def _save(self, state: dict[str, Any], best_step: int, snapshot: Snapshot) -> None:
        saved = ckpt.save_checkpoint(self._run_dir, state, snapshot)
        self._checkpoints = [*(c for c in self._checkpoints if c.step < saved.step), saved]
        self._write_model(best_step)
        self._prune(best_step)

    def _prune(self, best_step: int) -> None:
        """Deletes all but the averaged checkpoints, the latest, and the best."""
        count = max(_MIN_KEPT, self._config.average_checkpoints)
        kept_steps = {c.step for c in self._averageable()[-count:]}
        kept_steps |= {self._checkpoints[-1].step, best_step}
        for checkpoint in self._checkpoints:
            if checkpoint.step not in kept_steps:
                delete_folder(checkpoint.path)
        self._checkpoints = [c for c in self._checkpoints if c.step in kept_steps]

    def _averageable(self) -> list[Checkpoint]:
        return [c for c in self._checkpoints if self._criteria.is_averaged(c.step)]

    def _model_checkpoints(self, best_step: int) -> list[Checkpoint]:
        """The checkpoints whose average is the final model."""
        latest = self._checkpoints[-1]
        if self._config.final == "best":
            return [c for c in self._checkpoints if c.step == best_step] or [latest]
        older = [c for c in self._averageable() if c is not latest]
        return [*older, latest][-self._config.average_checkpoints :]

    def _describe_model(self, state: TrainingState) -> str:
        config = self._config
        if config.final == "ema":
            return "the exponential moving average of the weights"
        steps = [checkpoint.step for checkpoint in self._model_checkpoints(state.best_step)]
        single = f"the checkpoint of update {steps[-1]:,}"
        if config.final == "best":
            best = f"best by train.best_by={config.best_by}"
            if steps[-1] == state.best_step:
                return f"{single}, the {best}"
            return f"{single}, the latest: the {best}, of update {state.best_step:,}, is missing"
        written = sum(map(self._criteria.is_averaged, range(1, state.step + 1)))
        missing = len(steps) < min(config.average_checkpoints, written)
        if len(steps) == 1:
            source = single
        else:
            first, last = f"{steps[0]:,}", f"{steps[-1]:,}"
            source = f"the average of {len(steps)} checkpoints, of updates {first} to {last}"
        return source + (": older ones have been deleted" if missing else "")

    def _write_model(self, best_step: int) -> dict[str, Tensor]:
        """Writes the weights of the model folder."""
        if self._config.final == "ema":
            weights = ckpt.ema_weights(self._checkpoints[-1])
        else:
            weights = ckpt.average(self._model_checkpoints(best_step))
        ckpt.save_tensors(weights, self._run_dir / run_layout.WEIGHTS)
        return weights


def _ignore(*_: Any, **__: Any) -> None:
    pass


class NullCheckpointManager(CheckpointManager):
    """Writes nothing: the checkpoint manager of all ranks but the main one."""

    def __init__(self) -> None:
        pass

    save = record_validation = prune_leftovers = wait = check = close = _ignore

    def finish(self, state: TrainingState) -> dict[str, Tensor]:
        """No weights."""
        return {}
