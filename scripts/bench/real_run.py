"""Whole training runs: mt-train and its peers, each as its users run it, for ten minutes.

    python scripts/bench/real_run.py --corpus multi30k --model tiny    all that are installed
    python scripts/bench/real_run.py --run mt-train --run bf16='train.precision=bf16'
    python scripts/bench/real_run.py --run mt-train --run before=../old: --slice-minutes 1
    python scripts/bench/real_run.py --read runs/mine runs/other       tokens/s of any run folder

Every run is a process of its own that prepares the data, trains, validates and writes checkpoints
until its time is over. All read the same text with the same vocabulary, and have the same model
(post-norm), initial learning rate, schedule, dropout, label smoothing, precision, and number of
target tokens in an update. --run NAME is mt-train or a peer:

    torch           nn.Transformer in a plain loop over a shuffled, padding DataLoader
    torch-sorted    the same loop with batches of similar length
    marian          MarianMT in Hugging Face's Seq2SeqTrainer, grouped by length
    joeynmt         JoeyNMT's trainer; fp32 only, batches of random sentences

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
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from process_tree import usage
from real_run_peers import PEERS, PRECISIONS, REQUIRED, Recipe
from real_run_report import Run, plot, read_folders, report
from reporting import SHARED_DATA, argument_parser

from transformer_mt.config import SourceConfig, TokenizerConfig, TrainConfig, config_dir
from transformer_mt.data.subwords.tokenizer import one_line, train_tokenizer
from transformer_mt.data.text.sources import Pair, read_pairs
from transformer_mt.distributed import pick_device
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.training.hardware import pick_precision

ROOT = Path(__file__).resolve().parents[2]
PEERS_SCRIPT = Path(__file__).with_name("real_run_peers.py")
SAMPLE_SECONDS = 1.0
"""Seconds between two measurements of memory and CPU time."""
GRACE_SECONDS = 60.0
"""Seconds that a run has to end after SIGTERM."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.read:
        print(read_folders(options.read))
        return 0
    plans = [Plan.parse(text) for text in options.run or available_runs(options.precision)]
    for plan in plans:
        if options.precision not in PRECISIONS.get(str(plan.peer), (options.precision,)):
            raise InputError(f"{plan.peer} does not train in {options.precision}: set --precision")
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
        help="let the runs take turns of this many minutes, the others being stopped meanwhile "
        "(default: one run after another)",
    )
    add("--folder", type=Path, default=Path("runs/real_run"), help="default: runs/real_run")
    add("--corpus", default="multi30k", choices=CORPORA, help="default: multi30k")
    add("--data", type=Path, default=SHARED_DATA, help="the corpora (default: ../shared/data)")
    add("--pairs", type=int, help="number of training pairs (default: all)")
    add("--valid-pairs", type=int, default=1000, help="validation pairs (default: 1000)")
    add("--vocab", type=int, default=8000, help="pieces of the vocabulary (default: 8000)")
    add("--model", default="small", choices=models, help="configs/model/*.yaml (default: small)")
    add("--precision", default="auto", choices=["auto", "fp32", "bf16"], help="default: auto")
    add("--batch-tokens", type=int, default=2048, help="target tokens an update (default: 2048)")
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
    options.precision = pick_precision(options.precision, pick_device("auto"))
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
                raise InputError(f"{what} needs {' and '.join(missing)}: pip install --group bench")
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
        return [sys.executable, "-c", start, *mt_train_overrides(folder, recipe), *self.overrides]


def available_runs(precision: str) -> list[str]:
    """mt-train and the peers that are installed and have the precision."""
    found = ["mt-train"]
    for name in PEERS:
        if missing := missing_packages(name):
            print(f"{name} is left out: {' and '.join(missing)} not installed", file=sys.stderr)
        elif precision not in PRECISIONS.get(name, (precision,)):
            print(f"{name} is left out: it does not train in {precision}", file=sys.stderr)
        else:
            found.append(name)
    return found


def missing_packages(peer: str) -> list[str]:
    return [name for name in REQUIRED.get(peer, ()) if not find_spec(name)]


def mt_train_overrides(folder: Path, recipe: Recipe) -> list[str]:
    """The settings of mt-train that make its run comparable with the peers'."""
    train, valid = (
        f"[{{src: '{recipe.data}/{split}.src', tgt: '{recipe.data}/{split}.tgt'}}]"
        for split in ("train", "valid")
    )
    return [
        f"run_dir={folder / 'run'}",
        f"cache_dir={folder / 'cache'}",
        *("data=files", "data.src_lang=en", "data.tgt_lang=de"),
        *(f"data.train={train}", f"data.valid={valid}"),
        *("cleaning=none", f"data.cleaning.max_tokens={recipe.max_tokens}"),
        f"tokenizer.path={recipe.data}/tokenizer.model",
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
    waiting: deque[Process] = deque()
    for plan in plans:
        folder = options.folder.resolve() / plan.name
        found, asked = Run.load(folder), plan_words(plan)
        if found is not None and found.plan != asked:
            raise InputError(f"{folder} is a run with other settings: delete it, or rename --run")
        if found is not None and found.finished:
            print(f"{plan.name}: finished earlier", file=sys.stderr)
        else:
            waiting.append(Process(plan, asked, folder, recipe))
    limit = 60 * options.minutes
    turn = 60 * (options.slice_minutes or options.minutes)
    started = list(waiting)
    try:
        while waiting:
            process = waiting.popleft()
            process.go(min(turn, limit - process.seconds))
            if process.is_running and limit - process.seconds > 0.1:
                waiting.append(process)
            else:
                process.finish("time limit")
    except BaseException:
        for process in started:
            process.finish("interrupted")
        raise


def plan_words(plan: Plan) -> list[str]:
    """The plan as words, to compare it with that of an earlier run."""
    variables = [f"{key}={value}" for key, value in plan.environment.items()]
    return [plan.peer or f"mt-train of {plan.checkout}", *variables, *plan.overrides]


class Process:
    """A run in progress, in a process group of its own that can be stopped and continued."""

    def __init__(self, plan: Plan, asked: list[str], folder: Path, recipe: Recipe):
        self._run = Run(plan.name, folder, asked)
        self._command = plan.command(folder, recipe)
        self._environment = {**os.environ, **plan.environment}
        path = [str(plan.checkout), os.environ.get("PYTHONPATH", "")]
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def seconds(self) -> float:
        """Time that the run has had, without that of other runs' turns."""
        return sum(end - start for start, end in self._run.spans)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def go(self, seconds: float) -> None:
        """Starts or continues the run, measures it for so long, and stops it."""
        run = self._run
        print(f"{run.name}: {self.seconds / 60:.1f} min done", file=sys.stderr)
        start = time.time()
        run.spans.append((start, start))
        if self._process is None:
            self._start()
        else:
            self._signal(signal.SIGCONT)
        while self.is_running and (left := start + seconds - time.time()) > 0:
            assert self._process is not None
            try:
                self._process.wait(min(SAMPLE_SECONDS, left))
            except subprocess.TimeoutExpired:
                self._sample()
            run.spans[-1] = (start, time.time())
        run.spans[-1] = (start, time.time())
        self._signal(signal.SIGSTOP)

    def finish(self, reason: str) -> None:
        """Ends the run and writes its result, unless that is done."""
        if self._process is None or self._run.end:
            return
        run, status = self._run, self._process.poll()
        if status is None:
            run.end = reason
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            try:
                self._process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        else:
            run.end = f"ended with status {status}"
            print(f"{run.name} {run.end}: see {run.folder / 'output.log'}", file=sys.stderr)
        run.save()

    def _start(self) -> None:
        folder = self._run.folder
        if folder.exists():  # an interrupted run
            if not (folder / "output.log").exists():
                raise InputError(f"{folder} is not a run of this benchmark: rename --run")
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        with (folder / "output.log").open("wb") as output:
            output.write(f"$ {shlex.join(self._command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _sample(self) -> None:
        assert self._process is not None
        used = usage(self._process.pid)
        if used.rss:
            self._run.samples.append((time.time(), used.pss, used.rss, used.cpu_seconds))

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)


# The text.


def multi30k(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    train, valid = (
        [SourceConfig(src=str(data / f"multi30k/{n}.en.gz"), tgt=str(data / f"multi30k/{n}.de.gz"))]
        for n in ("train", "val")
    )
    return train, valid


def mix(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """Six kinds of text, validated on newstest2013."""
    kinds = ("news", "parliament", "books", "manuals", "bible", "sentences")
    train = [SourceConfig(tsv=str(data / f"mix/{kind}.tsv.gz")) for kind in kinds]
    valid = data / "mix/newstest2013"
    return train, [SourceConfig(src=f"{valid}.en.gz", tgt=f"{valid}.de.gz")]


def sample(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """The built-in sample."""
    return [SourceConfig(sample="train")], [SourceConfig(sample="valid")]


CORPORA = {"multi30k": multi30k, "mix": mix, "sample": sample}
"""Training and validation sources by name, in the folder --data."""


def prepare(options: argparse.Namespace) -> Recipe:
    """Writes text, vocabulary and recipe; refuses other settings than those of earlier runs."""
    folder = options.folder.resolve()
    data = folder / "data"
    recipe = Recipe(
        data=str(data),
        label_smoothing=TrainConfig().label_smoothing,
        **{
            key: getattr(options, key)
            for key in (
                "model", "precision", "batch_tokens", "peak_lr", "warmup_steps",
                "validate_every", "log_every",
            )
        },
    )  # fmt: skip
    text = {key: getattr(options, key) for key in ("corpus", "pairs", "valid_pairs", "vocab")}
    settings: dict[str, Any] = {**text, "minutes": options.minutes, "recipe": asdict(recipe)}
    written = folder / "settings.json"
    if written.exists():
        before = json.loads(written.read_text())
        changed = [key for key in settings if settings[key] != before.get(key)]
        if changed:
            raise InputError(
                f"{folder} has runs with other settings ({', '.join(changed)}): set --folder"
            )
        return recipe
    data.mkdir(parents=True, exist_ok=True)
    sources = CORPORA[options.corpus](options.data)
    limits = (options.pairs, options.valid_pairs)
    lines: list[str] = []
    for split, source, limit in zip(("train", "valid"), sources, limits, strict=True):
        pairs = list(islice(pairs_of_text(source), limit))
        for i, side in enumerate(("src", "tgt")):
            side_lines = [pair[i] for pair in pairs]
            write_text(data / f"{split}.{side}", "".join(f"{line}\n" for line in side_lines))
            lines += side_lines if split == "train" else []
    model = train_tokenizer(lines, TokenizerConfig(vocab_size=options.vocab))
    (data / "tokenizer.model").write_bytes(model)
    write_text(folder / "recipe.json", json.dumps(asdict(recipe), indent=2))
    write_text(written, json.dumps(settings, indent=2))
    return recipe


def pairs_of_text(sources: Sequence[SourceConfig]) -> Iterable[Pair]:
    """Pairs with text on both sides, each side on one line."""
    for pair in read_pairs(sources, src_lang="en", tgt_lang="de"):
        src, tgt = map(one_line, pair)
        if src and tgt:
            yield pair._replace(src=src, tgt=tgt)


if __name__ == "__main__":
    # Runs that wait for their turn are stopped: they must not stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"real_run.py: error: {error}")
