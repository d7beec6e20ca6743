"""Tiny training runs: a corpus, the settings, processes that run them, and what they record."""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_mt.cli.main import main
from transformer_mt.training.metrics_log import read_records

BIN = Path(sys.executable).parent
MT_TRAIN = str(BIN / "mt-train")
TIMEOUT = 180.0
"""Seconds after which a process counts as hanging."""
MODEL = [
    "model=tiny",
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
]
RECIPE = [
    "tokenizer.vocab_size=290",
    "data.cleaning.max_tokens=64",
    "schedule.warmup_steps=20",
    "train.batch_tokens=200",
    "train.max_tokens_per_device=120",  # two or three micro-batches per update
    "train.max_steps=40",
    "train.log_every=8",
    "train.checkpoint_every=8",
    "train.validate_every=20",
    "train.average_checkpoints=5",
    "train.device=cpu",
    "decode.max_extra_tokens=5",
]
ON_RANKS = [
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
"""Further settings of runs that several ranks share."""


def fork_server() -> ForkServerContext:
    """The context whose processes are forked from a server that has imported PyTorch and fonts.

    A forked command is a process of its own, with signals and an exit status, and saves the seconds
    that these take to load.
    """
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["support.fork_server_modules"])
    with pytest.MonkeyPatch.context() as patch:  # Python 3.11 does not pass sys.path to it
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()
    return found


def _serve(
    command: str | Sequence[str],
    argv: list[str],
    out: Path,
    cwd: Path,
    stdin: Path | None,
    env: dict[str, str],
) -> None:
    """Runs a command in a process that has imported its modules, or becomes a program."""
    os.chdir(cwd)
    os.environ.update(env)
    os.dup2(os.open(stdin or os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(out / name, os.O_WRONLY), number)
    if isinstance(command, str):
        torch.set_num_threads(1)
        sys.argv = [command, *argv]
        (out / "begins").touch()
        main(command)  # type: ignore[arg-type]
    else:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        (out / "begins").touch()
        os.execvp(command[0], [*command, *argv])


class Running:
    """A running command (train, translate, evaluate or export), forked from the server.

    It may also be a program, which is then a new process, in a session of its own.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        argv: list[str],
        out: Path,
        cwd: Path | None = None,
        stdin: Path | None = None,
        **env: str,
    ):
        out.mkdir()
        for name in ("out", "err"):
            (out / name).touch()
        self._out = out
        self.process: ForkServerProcess = fork_server().Process(
            target=_serve, args=(command, argv, out, cwd or Path.cwd(), stdin, env)
        )
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def begins(self) -> bool:
        """Whether it runs its own code: before that, a signal would hit the code of the server."""
        return (self._out / "begins").exists()

    def send(self, number: int) -> None:
        """Sends a signal; no error if the process has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> tuple[int | None, str, str]:
        """Exit status (minus the number of a signal that killed it), stdout, stderr."""
        self.process.join(TIMEOUT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            raise AssertionError(f"timeout; {(self._out / 'err').read_text()}")
        status = self.process.exitcode
        return status, (self._out / "out").read_text(), (self._out / "err").read_text()

    def done(self) -> tuple[str, str]:
        """Stdout and stderr of a command that must succeed."""
        status, out, err = self.wait()
        assert status == 0, err
        return out, err

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert self.process.is_alive(), (self._out / "err").read_text()
            assert time.monotonic() < deadline, "timeout"
            time.sleep(0.002)


Start = Callable[..., Running]
"""Starts a run in a folder, with overrides."""


def write_corpus(
    folder: Path,
    translate: Callable[[str], str] = str.upper,
    pairs: int = 120,
    valid: int = 11,
    test: int = 7,
) -> None:
    """A "translation" of random letters: train.tsv, valid.tsv, test.tsv.

    Two or three ranks cannot share the validation and test sets evenly.
    """
    rng = random.Random(0)
    for name, count in (("train", pairs), ("valid", valid), ("test", test)):
        lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(count)]
        text = "".join(f"{line}\t{translate(line)}\n" for line in lines)
        (folder / f"{name}.tsv").write_text(text)


def arguments(folder: Path, run_dir: Path, *more: str) -> list[str]:
    """Settings of a run on the corpus of a folder, which has the cache as well."""
    data = [f"data.{part}=[{{tsv: {folder}/{part}.tsv}}]" for part in ("train", "valid", "test")]
    languages = ["data=files", "data.src_lang=en", "data.tgt_lang=de"]
    where = [f"run_dir={run_dir}", f"cache_dir={folder}/cache"]
    return [*where, *languages, *data, *MODEL, *RECIPE, *more]


def start(corpus: Path, name: str, command: str | Sequence[str], *more: str, **env: str) -> Running:
    """Starts ``train`` or a program on a corpus, ``ON_RANKS``, in a folder of this name in it."""
    output = Path(tempfile.mkdtemp(dir=corpus)) / "output"
    argv = arguments(corpus, corpus / name, *ON_RANKS, *more)
    return Running(command, argv, output, None, None, OMP_NUM_THREADS="1", **env)


def workers(launcher: int) -> list[int]:
    """Process ids of the workers of a launcher, in the order of ranks."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return sorted(int(pid) for pid, line in lines.items() if b"transformer_mt.cli" in line)


def one_line_error(result: tuple[int | None, str, str]) -> str:
    """The error message of a command, which must be a single line after its progress."""
    status, out, err = result
    assert status == 1
    assert out == ""
    assert "Traceback" not in err
    lines = err.splitlines()
    assert [line for line in lines if "error" in line.lower()] == lines[-1:]
    return lines[-1].removeprefix("mt-train: error: ")


def records(run_dir: Path, split: str) -> list[dict[str, Any]]:
    return [record for record in read_records(run_dir) if record["split"] == split]


def curve(run_dir: Path, split: str = "train") -> list[tuple[Any, ...]]:
    keys = ("step", "loss", "nll", "ppl", "lr", "grad_norm")
    return [tuple(record[k] for k in keys if k in record) for record in records(run_dir, split)]


def checkpoints(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "checkpoints").glob("step_*"))
