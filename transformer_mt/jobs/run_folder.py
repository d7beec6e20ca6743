"""The folder of a run: its lock, and what is written when training starts and ends."""

import logging
import platform
import shlex
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import transformer_mt
from transformer_mt import files, model_folder, run_layout
from transformer_mt.config import TrainJob
from transformer_mt.data import held_out
from transformer_mt.data.prepare import Prepared
from transformer_mt.data.subwords.tokenizer import copy_vocabulary
from transformer_mt.distributed.world import World
from transformer_mt.kernels import hardware
from transformer_mt.training.progress import TrainingState

_PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core", "safetensors")

log = logging.getLogger(__name__)


def lock(run_dir: Path) -> AbstractContextManager[None]:
    """Locks the folder against other runs; ``InputError`` if another process holds the lock."""
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / run_layout.LOCK
    refusal = (
        f"another mt-train is using {run_dir}: stop it first, or choose a different run_dir; "
        f"if it was killed on another machine, delete {path}"
    )
    return files.locked(path, refusal)


def write_start(run_dir: Path, job: TrainJob, data: Prepared) -> None:
    """Writes what a run starts or resumes with: configuration, vocabulary, held-out pairs and
    cleaning report.

    Scores of an earlier end of the run are deleted, because they will not be the final model's, and
    so are temporary files that a killed run has left; not those of other commands, which may be
    writing to the same folder.
    """
    for name in (*run_layout.WRITTEN, run_layout.MODEL_CARD, *held_out.file_names(job.data)):
        files.delete_leftovers(run_dir / name)
    checkpoints = run_dir / run_layout.CHECKPOINTS
    for folder in (checkpoints, *checkpoints.glob(run_layout.CHECKPOINT_PATTERN)):
        files.delete_leftovers(folder / "*")
    (run_dir / run_layout.TEST_SCORES).unlink(missing_ok=True)
    model_folder.write_config(run_dir, job, data.tokenizer)
    copy_vocabulary(data.tokenizer_model, run_dir)
    held_out.write_sets(run_dir, job.data, {"valid": data.valid, "test": data.test})
    report = run_dir / run_layout.CLEANING_REPORT
    report.parent.mkdir(exist_ok=True)
    files.write_json(report, data.report | data.fingerprints)


def record_start(
    run_dir: Path, world: World, parameters: int, step: int, precision: str
) -> list[dict[str, Any]]:
    """Adds this start, after ``step`` updates, to ``run.json``; all ranks call it, rank 0 writes.

    Returns:
        All starts of the run, each with its command, code and hardware; none on other ranks.
    """
    device = hardware.device_name(world.device)
    devices = world.gather({"host": socket.gethostname(), "device": device})
    if not world.is_main:
        return []
    revision = _revision()
    start: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "step": step,
        "command": shlex.join(sys.argv),
        "version": transformer_mt.__version__,
        "revision": revision,
        "python": platform.python_version(),
        "packages": dict(zip(_PACKAGES, map(version, _PACKAGES), strict=True)),
        "cuda": torch.version.cuda if world.device.type == "cuda" else None,
        "platform": platform.platform(),
        "ranks": world.size,
        "devices": devices,
        "threads": torch.get_num_threads(),
        "parameters": parameters,
        "precision": precision,
    }
    path = run_dir / run_layout.RUN_INFO
    starts: list[dict[str, Any]] = []
    if path.exists():
        remedy = "delete it; training does not need it"
        starts = files.read_json(path, {"starts": list}, remedy=remedy)["starts"]
    starts.append(start)
    files.write_json(path, {"starts": starts})
    names = Counter(item["device"] for item in devices)
    log.info(
        "transformer_mt %s%s, torch %s, on %s",
        start["version"],
        f" ({revision})" if revision else "",
        torch.__version__,
        ", ".join(f"{count} × {name}" for name, count in names.items()),
    )
    return starts


def record_end(
    run_dir: Path,
    starts: Sequence[dict[str, Any]],
    state: TrainingState,
    averaged_updates: Sequence[int],
    metric: str,
) -> dict[str, Any]:
    """Writes the end of a run into ``run.json``; returns it.

    Args:
        run_dir: The run folder.
        starts: What ``record_start`` returned.
        state: Progress at the end.
        averaged_updates: The updates whose checkpoints the final model is the average of.
        metric: What the best validation is the best of.
    """
    end = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "step": state.step,
        "seconds": state.seconds,
        "averaged_updates": list(averaged_updates),
        "best": {"metric": metric, "score": state.best, "step": state.best_step},
    }
    files.write_json(run_dir / run_layout.RUN_INFO, {"starts": starts, "end": end})
    return end


def _revision() -> str | None:
    """Commit of the checkout, with ``-dirty`` if it has changes; None if this is not a checkout."""
    root = Path(transformer_mt.__file__).resolve().parent.parent
    if not (root / ".git").exists():  # installed, perhaps somewhere inside another repository
        return None
    describe = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    if shutil.which("git") is None:
        return None
    done = subprocess.run(describe, cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or None  # none of a checkout owned by another user
