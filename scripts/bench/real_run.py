"""Whole training runs: mt-train and its peers, each as its users run it, for ten minutes.

    python scripts/bench/real_run.py --corpus multi30k --model tiny    all that are installed
    python scripts/bench/real_run.py --run mt-train --run bf16='train.precision=bf16'
    python scripts/bench/real_run.py --run mt-train --run before=../old: --slice-minutes 1
    python scripts/bench/real_run.py --run mt-train --run later=mt-train: --minutes 24 \\
       --slice-minutes 0.5 --head-start-minutes 18                     is an old process as fast?
    python scripts/bench/real_run.py --read runs/mine runs/other       tokens/s of any run folder

Every run is a process of its own that prepares the data, trains, validates and writes checkpoints
until its time is over. All read the same text with the same vocabulary, and have the same model
(post-norm), peak learning rate, schedule, dropout, label smoothing, precision, and number of
target tokens in an update. --run NAME is mt-train or a peer:

    torch           nn.Transformer in a plain loop over a shuffled, padding DataLoader
    torch-sorted    the same loop with batches of similar length
    marian          MarianMT in Hugging Face's Seq2SeqTrainer, grouped by length

--run NAME='[WHAT:] WORDS' is a variant. WHAT is a peer or the folder of another checkout, whose
mt-train runs (default: this one). WORDS are overrides of mt-train, and environment variables in
capitals, such as LD_PRELOAD=libtcmalloc.so.4.

--folder keeps everything: settings, logs, checkpoints, results.jsonl, report.md and plot.png. The
same command continues after an interruption: runs that have finished are not repeated.
"""

import argparse
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from real_run_peers import PEERS, REQUIRED, Recipe
from real_run_process import Process
from real_run_report import Run, plot, read_folders, report
from real_run_text import CORPORA, prepare
from reporting import SHARED_DATA, argument_parser, run_main

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig, config_dir
from transformer_mt.distributed.world import pick_device
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.kernels.choice import choose_kernels

ROOT = Path(__file__).resolve().parents[2]
PEERS_SCRIPT = Path(__file__).with_name("real_run_peers.py")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.read:
        print(read_folders(options.read))
        return 0
    plans = [Plan.parse(text) for text in options.run or available_runs()]
    if not 0 <= (len(plans) - 1) * options.head_start_minutes < options.minutes:
        raise InputError("--head-start-minutes of all runs together must be below --minutes")
    names = [plan.name for plan in plans]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs are called {repeated.pop()}: use NAME=… to rename one")
    recipe = prepare(options)
    try:
        execute(plans, recipe, options)
        status = 0
    except KeyboardInterrupt:
        status = 130
    runs = [Run.load(options.folder / plan.name) for plan in plans]
    found = [run for run in runs if run is not None]
    text = report(found, asdict(recipe) | {"corpus": options.corpus, "minutes": options.minutes})
    print(text)
    write_text(options.folder / "report.md", text + "\n")
    records = [json.dumps(run.figures()) + "\n" for run in found]
    write_text(options.folder / "results.jsonl", "".join(records))
    plot(found, options.folder / "plot.png")
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    models = sorted(path.stem for path in (config_dir() / "model").glob("*.yaml"))
    add("--run", action="append", help="a run; may be repeated (default: mt-train and all peers)")
    add("--minutes", type=float, default=10.0, help="minutes of each run (default: 10)")
    add(
        "--slice-minutes",
        type=float,
        help="let the runs take turns of this many minutes while the others are stopped "
        "(default: one run after another)",
    )
    add(
        "--head-start-minutes",
        type=float,
        default=0.0,
        help="let each run begin so many minutes after the one before, and end with it",
    )
    add("--folder", type=Path, default=Path("runs/real_run"), help="default: runs/real_run")
    add("--corpus", default="multi30k", choices=CORPORA, help="default: multi30k")
    add("--data", type=Path, default=SHARED_DATA, help="the corpora (default: ../shared/data)")
    add("--pairs", type=int, help="number of training pairs (default: all)")
    add("--valid-pairs", type=int, default=1000, help="validation pairs (default: 1000)")
    add("--vocab", type=int, default=8000, help="pieces of the vocabulary (default: 8000)")
    add("--model", default="small", choices=models, help="configs/model/*.yaml (default: small)")
    add("--precision", default="auto", choices=["auto", "fp32", "bf16"], help="default: auto")
    add("--batch-tokens", type=int, default=2048, help="target tokens per update (default: 2048)")
    add("--peak-lr", type=float, default=1e-3, help="peak learning rate (default: 1e-3)")
    add("--warmup-steps", type=int, default=400, help="updates of warm-up (default: 400)")
    add("--validate-every", type=int, default=250, help="updates (default: 250)")
    add("--log-every", type=int, default=10, help="updates between two records (default: 10)")
    add("--read", type=Path, nargs="+", metavar="RUN", help="only read the logs of these folders")
    options = parser.parse_args(arguments)
    positive = ("minutes", "valid_pairs", "batch_tokens", "peak_lr", "warmup_steps")
    for key in (*positive, "slice_minutes", "validate_every", "log_every"):
        if getattr(options, key) is not None and getattr(options, key) <= 0:
            raise InputError(f"--{key.replace('_', '-')} must be above 0")
    if options.head_start_minutes and not options.slice_minutes:
        raise InputError("--head-start-minutes is for runs in turns: set --slice-minutes, too")
    chosen = choose_kernels("auto", options.precision, pick_device("auto"))
    options.precision = chosen.precision
    return options


# The runs.


@dataclass(frozen=True)
class Plan:
    """A run as asked for on the command line."""

    name: str
    peer: str | None = None
    checkout: Path = ROOT
    overrides: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Reads ``NAME`` or ``NAME='[WHAT:] WORDS'``."""
        name, given, rest = text.partition("=")
        if not re.fullmatch(r"[\w.-]+", name) or name == "data":
            raise InputError(f"--run {text}: a name has letters, digits, '.', '_' and '-'")
        what, colon, words = rest.partition(":")
        if not given:
            what, words = name, ""
            if name not in ("mt-train", *PEERS):
                raise InputError(f"no run {name!r}; there are: mt-train, {', '.join(PEERS)}")
        elif not colon or re.search(r"[=\s]", what):  # a colon inside an override
            what, words = "mt-train", rest
        environment, overrides = {}, []
        for word in shlex.split(words):
            key, _, value = word.partition("=")
            if re.fullmatch(r"[A-Z][A-Z0-9_]*", key):
                environment[key] = value
            else:
                overrides.append(word)
        if what in PEERS:
            if missing := missing_packages(what):
                raise InputError(f"{what} is not installed: pip install {' '.join(missing)}")
            if overrides:
                raise InputError(f"--run {text}: {what} takes environment variables only")
            return cls(name, what, environment=environment)
        checkout = ROOT if what == "mt-train" else Path(what).resolve()
        if not (checkout / "pyproject.toml").is_file():
            raise InputError(f"--run {text}: {what} is neither a peer nor a checkout")
        return cls(name, None, checkout, tuple(overrides), environment)

    def command(self, folder: Path, recipe: Recipe) -> list[str]:
        """The command line of the run."""
        if self.peer is not None:
            return [sys.executable, str(PEERS_SCRIPT), self.peer, str(folder)]
        project = tomllib.loads((self.checkout / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, function = project["project"]["scripts"]["mt-train"].partition(":")
        start = f"from {module} import {function}; {function}()"
        # -P: otherwise the package of the working folder would come before that of the checkout.
        program = [sys.executable, "-P", "-c", start]
        return [*program, *mt_train_overrides(folder, recipe), *self.overrides]

    def environ(self) -> dict[str, str]:
        """All environment variables of the run."""
        path = filter(None, [str(self.checkout), os.environ.get("PYTHONPATH", "")])
        return {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(path)}


def available_runs() -> list[str]:
    """mt-train and the peers that are installed."""
    found = ["mt-train"]
    for name in PEERS:
        if missing := missing_packages(name):
            print(f"{name} is left out: {' and '.join(missing)} not installed", file=sys.stderr)
        else:
            found.append(name)
    return found


def missing_packages(peer: str) -> list[str]:
    return [name for name in REQUIRED.get(peer, ()) if not find_spec(name)]


def mt_train_overrides(folder: Path, recipe: Recipe) -> list[str]:
    """The settings of mt-train that make its run comparable with the peers'."""
    train, valid = (
        [SourceConfig(src=f"{recipe.data}/{split}.src", tgt=f"{recipe.data}/{split}.tgt")]
        for split in ("train", "valid")
    )
    return [
        override("run_dir", folder / "run"),
        override("cache_dir", folder / "cache"),
        *("data=files", "data.src_lang=en", "data.tgt_lang=de"),
        *(override("data.train", train), override("data.valid", valid)),
        *("cleaning=none", f"data.cleaning.max_tokens={recipe.max_tokens}"),
        override("tokenizer.path", f"{recipe.data}/tokenizer.model"),
        *(f"model={recipe.model}", "model.norm=post"),
        *("schedule=inverse_sqrt", f"schedule.peak_lr={recipe.peak_lr}"),
        f"schedule.warmup_steps={recipe.warmup_steps}",
        f"train.batch_tokens={recipe.batch_tokens}",
        f"train.max_steps={recipe.max_steps}",
        f"train.precision={recipe.precision}",
        f"train.label_smoothing={recipe.label_smoothing}",
        f"train.log_every={recipe.log_every}",
        f"train.validate_every={recipe.validate_every}",
        f"train.checkpoint_every={recipe.validate_every}",
        f"train.seed={recipe.seed}",
    ]


def execute(plans: Sequence[Plan], recipe: Recipe, options: argparse.Namespace) -> None:
    """Runs all that have not finished, one after another or in turns."""
    processes: dict[int, Process] = {}  # by position
    for number, plan in enumerate(plans):
        folder = options.folder.resolve() / plan.name
        found, asked = Run.load(folder), plan_words(plan)
        if found is not None and found.plan != asked:
            raise InputError(f"{folder} is a run with other settings: delete it, or rename --run")
        if found is not None and found.finished:
            print(f"{plan.name}: finished earlier", file=sys.stderr)
        else:
            run = Run(plan.name, folder, asked)
            processes[number] = Process(run, plan.command(folder, recipe), plan.environ())
    head_start = 60 * options.head_start_minutes
    turn = 60 * (options.slice_minutes or options.minutes)
    try:
        while not all(process.has_ended for process in processes.values()):
            for number, process in processes.items():
                limit = 60 * options.minutes - number * head_start
                previous = processes.get(number - 1)
                waits = previous and not previous.has_ended and previous.seconds < head_start
                if process.has_ended or waits:
                    continue
                process.go(min(turn, limit - process.seconds))
                if not process.is_running or limit - process.seconds <= 0.1:
                    process.finish("time limit")
    except BaseException:
        for process in processes.values():
            process.finish("interrupted")
        raise


def plan_words(plan: Plan) -> list[str]:
    """The plan as words, to compare it with that of an earlier run."""
    variables = [f"{key}={value}" for key, value in plan.environment.items()]
    return [plan.peer or f"mt-train of {plan.checkout}", *variables, *plan.overrides]


if __name__ == "__main__":
    # Runs that wait for their turn are stopped: they must not stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run_main(main)
