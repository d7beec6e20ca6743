"""Whole training runs: mt-train and its peers, each as its users run it, for ten minutes.

    python scripts/bench/real_run.py --corpus multi30k --model tiny    mt-train and all peers
    python scripts/bench/real_run.py --run mt-train --run bf16='train.precision=bf16'
    python scripts/bench/real_run.py --run before=../old: --run now= --slice-minutes 1

Every run is a process of its own that prepares the data, trains, validates and writes checkpoints
until its time is over. All have the same text, vocabulary, model (post-norm), peak learning rate,
schedule, dropout, label smoothing, precision, and number of target tokens in an update. --run NAME
is mt-train or a peer:

    torch     nn.Transformer in a plain loop, batches of similar length, padded
    marian    MarianMT in Hugging Face's Seq2SeqTrainer, grouped by length

--run NAME='[FOLDER:] OVERRIDES' is mt-train with other settings, or that of another checkout;
--run again= repeats mt-train, and shows the noise.

The new folder --folder gets their logs and checkpoints, report.md and results.json.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import shared
from peers import model_config
from real_run_peers import PEERS
from real_run_report import Run, report

from transformer_mt.cli.compose import override
from transformer_mt.distributed.world import pick_device
from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import fastest_precision

ROOT = Path(__file__).resolve().parents[2]
PEERS_SCRIPT = Path(__file__).with_name("real_run_peers.py")
SAMPLE_SECONDS = 1.0
"""Seconds between two measurements of memory and CPU time."""
GRACE_SECONDS = 60.0
"""Seconds that a run has to end after SIGTERM."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    plans = [Plan.parse(text) for text in options.run or ["mt-train", *PEERS]]
    names = [plan.name for plan in plans]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs are called {repeated.pop()}: use NAME=… to rename one")
    folder = options.folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists: delete it, or set --folder")
    processes = [Process(plan, folder, common_settings(options)) for plan in plans]
    status = 0
    try:
        take_turns(processes, options)
    except KeyboardInterrupt:
        status = 130
    runs = [process.run for process in processes if process.run.spans]
    text = report(runs, f"{options.model} on {options.corpus}, {options.precision}")
    print(text)
    (options.folder / "report.md").write_text(text + "\n", encoding="utf-8")
    figures = json.dumps([run.figures() for run in runs], indent=1)
    (options.folder / "results.json").write_text(figures)
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = shared.argument_parser(__doc__)
    add = parser.add_argument
    add("--run", action="append", help="a run; may be repeated (default: mt-train and all peers)")
    add("--minutes", type=float, default=10.0, help="minutes of each run (default: 10)")
    turns = "let the runs take turns of this many minutes (default: one run after another)"
    add("--slice-minutes", type=float, help=turns)
    add("--folder", type=Path, default=Path("runs/real_run"), help="default: runs/real_run")
    shared.add_model(parser, "small")
    shared.add_corpus(parser)
    add("--vocab", type=int, default=8000, help="pieces of the vocabulary (default: 8000)")
    add("--precision", default="auto", choices=["auto", "fp32", "bf16"], help="default: auto")
    add("--batch-tokens", type=int, default=2048, help="target tokens per update (default: 2048)")
    add("--validate-every", type=int, default=250, help="updates (default: 250)")
    options = parser.parse_args(arguments)
    shared.check_positive(options, "minutes", "slice_minutes", "batch_tokens", "validate_every")
    if options.precision == "auto":
        options.precision = fastest_precision(pick_device("auto"))
    return options


def common_settings(options: argparse.Namespace) -> list[str]:
    """The settings of mt-train that all runs have, except for their folders."""
    train, valid = shared.CORPORA[options.corpus](options.data.resolve())
    config = model_config(options.model)
    return [
        *shared.data_settings(train, valid),
        *("cleaning=none", f"tokenizer.vocab_size={options.vocab}"),
        *(f"model={options.model}", f"model.norm={config.norm}"),
        f"model.layer_norm_eps={config.layer_norm_eps}",
        *("schedule=inverse_sqrt", "schedule.peak_lr=1e-3", "schedule.warmup_steps=400"),
        f"train.batch_tokens={options.batch_tokens}",
        *("train.max_steps=1000000", f"train.precision={options.precision}", "train.log_every=10"),
        f"train.validate_every={options.validate_every}",
        f"train.checkpoint_every={options.validate_every}",
    ]


# The runs.


@dataclass(frozen=True)
class Plan:
    """A run as asked for on the command line."""

    name: str
    peer: str | None = None
    checkout: Path = ROOT
    overrides: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Reads ``NAME`` or ``NAME='[FOLDER:] OVERRIDES'``."""
        name, given, rest = text.partition("=")
        if not re.fullmatch(r"[\w.-]+", name):
            raise InputError(f"--run {text}: a name has letters, digits, '.', '_' and '-'")
        if not given and name in PEERS:
            if name == "marian":
                shared.require("transformers", "the run marian")
                shared.require("accelerate", "the run marian")
            return cls(name, name)
        if not given and name != "mt-train":
            raise InputError(f"no run {name!r}; there are: mt-train, {', '.join(PEERS)}")
        words, checkout = shlex.split(rest), ROOT
        if words and words[0].endswith(":"):
            checkout = Path(words.pop(0).removesuffix(":")).resolve()
            if not (checkout / "pyproject.toml").is_file():
                raise InputError(f"--run {text}: {checkout} is not a checkout")
        return cls(name, None, checkout, tuple(words))

    def command(self, settings: Sequence[str]) -> list[str]:
        """The command line of the run."""
        if self.peer is not None:
            return [sys.executable, str(PEERS_SCRIPT), self.peer, *settings]
        project = tomllib.loads((self.checkout / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, function = project["project"]["scripts"]["mt-train"].partition(":")
        start = f"from {module} import {function}; {function}()"
        # -P: otherwise the package of the working folder would come before that of the checkout.
        return [sys.executable, "-P", "-c", start, *settings, *self.overrides]


class Process:
    """A run in progress, in a process group of its own that can be stopped and continued."""

    def __init__(self, plan: Plan, folder: Path, settings: Sequence[str]):
        what = plan.peer or " ".join([f"mt-train of {plan.checkout}", *plan.overrides])
        self.run = Run(plan.name, folder / plan.name, what)
        folders = {"run_dir": self.run.folder / "run", "cache_dir": self.run.folder / "cache"}
        own = [override(key, path) for key, path in folders.items()]
        self._command = plan.command([*own, *settings])
        path = filter(None, [str(plan.checkout), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def seconds(self) -> float:
        """Time that the run has had, without that of other runs' turns."""
        return sum(end - start for start, end in self.run.spans)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def go(self, seconds: float) -> None:
        """Starts or continues the run, measures it for so long, and stops it."""
        print(f"{self.run.name}: {self.seconds / 60:.1f} min done", file=sys.stderr)
        start = time.time()
        self.run.spans.append((start, start))
        if self._process is None:
            self._process = self._start()
        self._signal(signal.SIGCONT)
        while self.is_running and (left := start + seconds - time.time()) > 0:
            try:
                self._process.wait(min(SAMPLE_SECONDS, left))
            except subprocess.TimeoutExpired:
                used = shared.usage(self._process.pid)
                if used.memory:
                    self.run.samples.append((time.time(), used.memory, used.cpu_seconds))
            self.run.spans[-1] = (start, time.time())
        self.run.spans[-1] = (start, time.time())
        self._signal(signal.SIGSTOP)

    def finish(self, reason: str) -> None:
        """Ends the run, unless that is done."""
        if self._process is None or self.run.end:
            return
        status = self._process.poll()
        if status is not None:
            self.run.end = f"ended with status {status}"
            log = self.run.folder / "output.log"
            print(f"{self.run.name} {self.run.end}: see {log}", file=sys.stderr)
            return
        self.run.end = reason
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.run.folder.mkdir(parents=True)
        with (self.run.folder / "output.log").open("wb") as output:
            output.write(f"$ {shlex.join(self._command)}\n".encode())
            output.flush()
            return subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)


def take_turns(processes: Sequence[Process], options: argparse.Namespace) -> None:
    """Lets all runs have their minutes, one after another or in turns."""
    limit = 60 * options.minutes
    turn = 60 * (options.slice_minutes or options.minutes)
    try:
        while running := [process for process in processes if not process.run.end]:
            for process in running:
                process.go(min(turn, limit - process.seconds))
                if not process.is_running or limit - process.seconds <= 0.1:
                    process.finish("time limit")
    finally:
        for process in processes:
            process.finish("interrupted")


if __name__ == "__main__":
    # Runs that wait for their turn are stopped: they must not stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shared.run_main(main)
