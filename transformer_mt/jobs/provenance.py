"""Provenance of a run: ``run.json`` records each start with its command, code and hardware."""

import json
import logging
import platform
import shlex
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import transformer_mt
from transformer_mt import run_layout
from transformer_mt.distributed import World
from transformer_mt.files import write_text
from transformer_mt.kernels import hardware
from transformer_mt.kernels.choice import Kernels

_PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core", "safetensors")

log = logging.getLogger(__name__)


def record_start(
    run_dir: Path, world: World, parameters: int, step: int, kernels: Kernels | None = None
) -> None:
    """Add this start, after ``step`` updates, to ``run.json``; all ranks call it, rank 0 writes."""
    hosts = world.gather((socket.gethostname(), hardware.device_name(world.device)))
    if not world.is_main:
        return
    revision, dirty = _revision()
    start: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "step": step,
        "command": shlex.join(sys.argv),
        "version": transformer_mt.__version__,
        "revision": revision,
        "dirty": dirty,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
        "ranks": world.size,
        "devices": [{"host": host, "device": device} for host, device in hosts],
        "processor": hardware.exact_model(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "parameters": parameters,
        "kernels": None if kernels is None else asdict(kernels),
    }
    path = run_dir / run_layout.RUN_INFO
    write_text(path, json.dumps({"starts": [*_starts(path), start]}, indent=2, ensure_ascii=False))
    names = Counter(device for _, device in hosts)
    log.info(
        "transformer_mt %s%s, torch %s, on %s",
        start["version"],
        f" ({revision[:10]}{', changed' if dirty else ''})" if revision else "",
        torch.__version__,
        ", ".join(f"{count} × {name}" for name, count in names.items()),
    )


def recorded_kernels(run_dir: Path) -> Kernels | None:
    """CPU kernels of the run's last start, if it was on a processor like this one."""
    starts = _starts(run_dir / run_layout.RUN_INFO)
    last = starts[-1] if starts and isinstance(starts[-1], dict) else {}
    same_processor = last.get("processor") == hardware.exact_model(torch.device("cpu"))
    return Kernels.from_json(last.get("kernels")) if same_processor else None


def _starts(path: Path) -> list[Any]:
    """The starts recorded so far; a damaged file does not prevent training."""
    try:
        starts = json.loads(path.read_text(encoding="utf-8"))["starts"]
        if isinstance(starts, list):
            return starts
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    log.warning("%s is damaged and will be replaced", path)
    return []


def _revision() -> tuple[str, bool] | tuple[None, None]:
    """Commit of the checkout and whether it has changes; None if this is not a checkout."""
    root = Path(transformer_mt.__file__).resolve().parent.parent
    if not (root / ".git").exists():  # installed, perhaps somewhere inside another repository
        return None, None
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        description = subprocess.run(
            [*command, "--exclude=*", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout owned by another user
        return None, None
    return description.removesuffix("-dirty"), description.endswith("-dirty")
