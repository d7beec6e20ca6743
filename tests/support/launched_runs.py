"""mt-train on a corpus and a model that take seconds, on any number of ranks."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support import training_runs
from support.training_runs import Running, arguments
from support.training_runs import checkpoints as checkpoints
from support.training_runs import records as records

BIN = Path(sys.executable).parent
MT_TRAIN = str(BIN / "mt-train")
SETTINGS = [
    "train.precision=fp32",
    "model.dropout=0",  # its masks depend on the number of ranks
    "schedule=inverse_sqrt",
    "schedule.warmup_steps=10",
    "schedule.peak_lr=5e-3",  # low enough that rounding errors do not grow
    "train.max_tokens_per_device=80",
    "train.max_steps=50",
    "train.log_every=1",
    "train.checkpoint_every=20",
    "train.validate_every=25",
    "decode.beam_size=2",
    "decode.max_extra_tokens=2",
]


def write_corpus(folder: Path) -> Path:
    """A corpus whose validation and test sets the ranks cannot share evenly."""
    training_runs.write_corpus(folder, valid=7, test=5)
    return folder


def settings(corpus: Path, name: str) -> list[str]:
    return arguments(corpus, corpus / name, *SETTINGS)


def start(corpus: Path, name: str, command: str | Sequence[str], *more: str, **env: str) -> Running:
    """Starts ``train`` or a program with these settings."""
    output = Path(tempfile.mkdtemp(dir=corpus)) / "output"
    argv = [*settings(corpus, name), *more]
    return Running(command, argv, output, None, None, OMP_NUM_THREADS="1", **env)


def workers(launcher: int) -> list[int]:
    """Process ids of a launcher's workers, in the order of ranks."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return sorted(int(pid) for pid, line in lines.items() if b"transformer_mt.cli" in line)
