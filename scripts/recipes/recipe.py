"""Recipes: lists of steps, each an ordinary command, that resume where they were interrupted.

Every command writes its output atomically, so what exists is complete. It is used again if
``recipe.json`` says that this very command made it from these very inputs. ``mt-train`` alone
writes into a folder as it goes, and decides by itself what is left to do.
"""

import argparse
import ctypes
import functools
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from transformer_mt import files, model_folder, run_layout
from transformer_mt.cli.compose import compose, override, to_job
from transformer_mt.config import CleaningConfig, DataConfig, SourceConfig, TrainJob
from transformer_mt.console import exit_status
from transformer_mt.data import held_out
from transformer_mt.errors import InputError

_RECORD, _LOCK = "recipe.json", ".recipe.lock"
_MODULES = {
    "mt-train": "train",
    "mt-translate": "translate",
    "mt-export": "export",
}
_SCRIPTS = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """A command and what it makes: a file or a folder."""

    name: str
    command: list[str]
    """As anyone would type it: ``mt-…``, or the name of a script in this folder."""
    output: Path
    inputs: Sequence[Path] = ()
    """Files and model folders that it reads."""

    def __str__(self) -> str:
        program, *arguments = self.command
        shown = [program] if program in _MODULES else ["python", _shown(_SCRIPTS / program)]
        return shlex.join([*shown, *arguments])

    @property
    def argv(self) -> list[str]:
        """The command to run, by this Python."""
        program, *arguments = self.command
        if program in _MODULES:
            return [sys.executable, "-m", "transformer_mt.cli", _MODULES[program], *arguments]
        return [sys.executable, str(_SCRIPTS / program), *arguments]


def _shown(path: Path) -> str:
    """The path from the working folder, if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def run_steps(folder: Path, steps: Sequence[Step], *, dry_run: bool = False) -> None:
    """Runs the steps that are not finished, or prints the commands of all.

    The standard output of the last one is passed on; that of the others goes to standard error.

    Raises:
        InputError: Another process is at work in the folder, or a file was made by another command
            or from other inputs.
        SystemExit: A step failed; it has said why.
    """
    if dry_run:
        print(shlex.join(["mkdir", "-p", str(folder)]), *steps, sep="\n")
        return
    for step in steps:
        if step.command[0] == "mt-translate":  # refuses wrong settings before the other steps
            compose(step.command[1:], "translate")
    folder.mkdir(parents=True, exist_ok=True)
    refusal = f"another process is at work in {folder}: wait, or stop it"
    with files.locked(folder / _LOCK, refusal):
        for number, step in enumerate(steps):
            done = _is_finished(folder, step, steps[number:])
            say(f"[{number + 1}/{len(steps)}] {step.name}{': done' if done else ''}")
            if not done:
                say(f"$ {step}")
                _run(step, to_stdout=step is steps[-1])
                _record(folder, step, finished=True)


def say(message: str) -> None:
    """Prints a message to standard error."""
    print(message, file=sys.stderr, flush=True)


def _is_finished(folder: Path, step: Step, rest: Sequence[Step]) -> bool:
    """Whether a step is finished; if it is not, records that it starts now."""
    now, records = _state(step), _records(folder)
    before = records.get(step.name, {})
    changed = [key for key in now if before.get(key) != now[key]]
    exists = step.output.exists()
    is_atomic = step.command[0] != "mt-train"
    if exists and not changed and (is_atomic or before["finished"]):
        return True
    if exists and is_atomic and not before:
        raise InputError(
            f"{step.output} was not made by this recipe: move it, or choose another folder"
        )
    if exists and is_atomic:
        made_from = before.get("inputs", {})
        others = [name for name, state in now["inputs"].items() if made_from.get(name) != state]
        what = f"from another {others[0]}" if others else "by another command"
        outputs = ", ".join(str(each.output) for each in rest if each.output.exists())
        raise InputError(
            f"{step.output} was made {what}: to make it again, delete it and what depends on it "
            f"({outputs}), or choose another folder"
        )
    _record(folder, step, finished=False)
    return False


def _record(folder: Path, step: Step, *, finished: bool) -> None:
    record = {**_state(step), "finished": finished}
    files.write_json(folder / _RECORD, {**_records(folder), step.name: record})


def _records(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    return dict(files.read_json(path, {}, remedy="delete the folder")) if path.exists() else {}


def _state(step: Step) -> dict[str, Any]:
    # Neither the number of workers nor the folder of the cache changes the output.
    kept = [text for text in step.command if not text.startswith(("data.workers=", "cache_dir="))]
    return {"command": kept, "inputs": {str(p): _checksums(p) for p in step.inputs}}


def _checksums(path: Path) -> list[str]:
    """Checksums of a file, of a model's weights, or of the files of a folder."""
    weights = path / run_layout.WEIGHTS
    paths = [weights] if weights.exists() else sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        return [_checksum(each, each.stat().st_mtime_ns) for each in paths if not each.is_dir()]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


@functools.cache
def _checksum(path: Path, modified: int) -> str:  # A copy on another machine has another time.
    return files.sha256(path)


def _run(step: Step, *, to_stdout: bool) -> None:
    """Runs a command to its end; a signal is passed on, and if this process dies, so does it."""
    process = subprocess.Popen(
        step.argv,
        stdin=subprocess.DEVNULL,
        stdout=None if to_stdout else sys.stderr,
        process_group=0,  # Ctrl-C reaches it once, from here
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # as SIGHUP is under nohup
            signal.signal(number, lambda number, _: process.send_signal(number))
    status = process.wait()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if status == 0 and not step.output.exists():
        raise InputError(f"{step.name} has not written {step.output}")
    if status < 0:
        say(f"{step.name} was killed by {signal.Signals(-status).name}")
    if status != 0:
        say("Correct the cause, and run the same command again to resume with this step.")
        sys.exit(status if status > 0 else 128 - status)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(recipe: Callable[[], None]) -> None:
    """Runs the main function of a script; bad input gives one line and status 1."""
    with exit_status(Path(sys.argv[0]).stem):
        recipe()


def argument_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of a script."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )


@dataclass
class Overrides:
    """Overrides of the commands: ``NAME:key=value`` is for one of them, ``key=value`` for all."""

    common: list[str] = field(default_factory=list)
    only: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, arguments: Sequence[str], names: Sequence[str]) -> "Overrides":
        """Sorts arguments by their prefixes, of which there are ``names``."""
        result = cls(only={name: [] for name in names})
        for argument in arguments:
            prefix, colon, rest = argument.partition(":")
            known = colon and prefix in names
            (result.only[prefix] if known else result.common).append(rest if known else argument)
        return result


def train_job(overrides: Sequence[str]) -> TrainJob:
    """The job that ``mt-train`` would run; Hydra's flags are allowed.

    Raises:
        SystemExit: ``mt-train`` does not accept the overrides; it has said why.
        InputError: They take validation or test pairs out of the training sources.
    """
    command = [sys.executable, "-m", "transformer_mt.cli", "train", "--cfg", "job"]
    # Without --resolve, which would undo the escapes of ${; run_dir refers to Hydra's own settings.
    done = subprocess.run(
        [*command, *overrides, "run_dir=."], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    if done.returncode:
        sys.exit(done.returncode)
    config = OmegaConf.create(yaml.safe_load(done.stdout))
    assert isinstance(config, DictConfig)
    job = to_job(config, "train")
    assert isinstance(job, TrainJob)
    for part in ("valid", "test"):
        if getattr(job.data, f"{part}_pairs") is not None:
            raise InputError(
                f"data.{part}_pairs: the steps of a recipe train on different text: set "
                f"data.{part}_pairs=null and data.{part} to files, such as RUN_DIR/data/{part}.* "
                "of an earlier run"
            )
    return job


def held_out_settings(arguments: Sequence[str]) -> list[str]:
    """Overrides that give the held-out pairs of the run that ``--config-dir`` names, as its files.

    Empty if it names no run, or one that held out no pairs.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    run = parser.parse_known_args(arguments)[0].config_dir
    if run is None or not (run / run_layout.CONFIG).exists():
        return []
    data = model_folder.read_config(run, TrainJob).data
    written = held_out.with_written_sets(data, run)
    names = [name for part in held_out.sizes(data) for name in (f"{part}_pairs", part)]
    return [override(f"data.{name}", getattr(written, name)) for name in names]


def data_settings(data: DataConfig, train: Sequence[SourceConfig]) -> list[str]:
    """Overrides that give a job the data of another, with other training sources."""
    names = ["src_lang", "tgt_lang", "normalization", "valid", "test"]
    names += ["workers"] if data.workers is not None else []
    values = {f"data.{name}": getattr(data, name) for name in names}
    values["data.train"] = list(train)
    return ["data=files", *(override(*item) for item in values.items())]


def cache_settings(job: TrainJob) -> list[str]:
    """The override of ``cache_dir``, if it is not the default."""
    return [override("cache_dir", job.cache_dir)] if job.cache_dir != TrainJob.cache_dir else []


def cleaning_settings(data: DataConfig) -> list[str]:
    """Overrides of ``data.cleaning`` that differ from the defaults."""
    defaults = asdict(CleaningConfig())
    given = asdict(data.cleaning).items()
    return [override(f"data.cleaning.{k}", value) for k, value in given if value != defaults[k]]


def reversed_source(source: SourceConfig) -> SourceConfig:
    """The same pairs in the other direction, if ``data.src_lang`` and ``tgt_lang`` are swapped."""
    if source.src_lang or source.tgt_lang:
        raise InputError(
            f"{source} has languages of its own: train the reverse model yourself, and give it "
            "with --reverse FOLDER"
        )
    first, second = ("1", "2") if source.tsv else (None, None)
    langs = source.langs and "-".join(reversed(source.langs.split("-")))
    return replace(
        source,
        src=source.tgt,
        tgt=source.src,
        src_column=source.tgt_column or second,
        tgt_column=source.src_column or first,
        langs=langs,
    )


def text_source(text: str) -> SourceConfig:
    """A source from ``{…}``, as in ``data.train``, or a text file as both sides of one."""
    if not text.startswith("{"):
        return SourceConfig(src=text, tgt=text)
    try:
        fields = yaml.load(text, yaml.BaseLoader)  # to which "no" is a language, not false
        return SourceConfig(**{key: str(value) for key, value in fields.items()})
    except (yaml.YAMLError, TypeError, AttributeError):
        raise InputError(f"{text} is not a data source, such as {{tsv: a.tsv.gz}}") from None


def source_files(sources: Sequence[SourceConfig]) -> list[Path]:
    """The local files and folders of data sources."""
    return [path for source in sources for path in source.paths.values()]


def model_name(text: str) -> str:
    """A model as given, without the slash that a shell's completion adds to a folder."""
    return text if text.startswith("hf://") else str(Path(text))


def local_models(models: Sequence[str]) -> list[Path]:
    """The folders among models, which may also be on the Hub."""
    return [files.expand_user(model) for model in models if not model.startswith("hf://")]
