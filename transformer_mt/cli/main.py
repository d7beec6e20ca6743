"""The commands: what each of them runs and prints, and the main function that they share.

The jobs load PyTorch, which ``--help`` does not need, so that each is imported when it runs.
"""

import io
import multiprocessing
import os
import sys
from argparse import ArgumentError, ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from io import RawIOBase, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from transformer_mt import __version__
from transformer_mt.cli.compose import (
    compose,
    explained_errors,
    override,
    quoted,
    to_job,
    with_experiment,
)
from transformer_mt.cli.exit_status import exit_on_interrupt, exit_status
from transformer_mt.config import (
    JOBS,
    Command,
    EvaluateJob,
    ExportJob,
    TrainJob,
    TranslateJob,
    compose_config,
    config_dir,
    register_schema,
)
from transformer_mt.config.help import help_text
from transformer_mt.config.settings import setting_names
from transformer_mt.config.usage_errors import similar
from transformer_mt.distributed.environment import LauncherEnv
from transformer_mt.errors import InputError, UsageError
from transformer_mt.progress_reporter import log_to

_FLAGS = {
    *("--cfg", "-c", "--resolve", "--package", "-p", "--info", "-i", "--hydra-help"),
    *("--multirun", "-m", "--run", "-r", "--shell-completion", "-sc"),
    *("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp"),
}
"""Hydra's flags but for ``--experimental-rerun``, which reads a pickle file."""

_WRITE_NOTHING = (
    *("hydra/hydra_logging=none", "hydra/job_logging=none"),
    *("hydra.run.dir=.", "hydra.output_subdir=null", "hydra.job.chdir=false"),
)
"""Overrides with which Hydra writes no files of its own: the run folder is ours."""


def train(job: TrainJob) -> float | None:
    """Trains a model and prints its test scores, or where the prepared data is.

    Returns:
        The objective of a search over settings: the best value of ``train.best_by``.
    """
    with exit_on_interrupt("mt-train", gigabytes=3):
        from transformer_mt.evaluation.scores import to_text
        from transformer_mt.jobs.train import train
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))
    return result.best


def translate(job: TranslateJob) -> None:
    """Translates a document, a file to a file, which can resume, or a stream."""
    with exit_on_interrupt("mt-translate", gigabytes=1):
        from transformer_mt.jobs.line_processor import translates_file

        if job.document_format is not None:
            from transformer_mt.jobs.translate_document import translate_document as run
        elif translates_file(job):
            from transformer_mt.jobs.translate_file import translate_file as run
        else:
            from transformer_mt.jobs.translate_stream import translate_stream as run
    with log_to(prefix="mt-translate: "):
        run(job)


def evaluate(job: EvaluateJob) -> None:
    """Prints the scores of translations, or what the job asks for in place of them."""
    with exit_on_interrupt("mt-eval", gigabytes=1):
        from transformer_mt.jobs.evaluate import Evaluator
    if sys.stdout is None:
        raise InputError("standard output is closed: send the scores to a file, > FILE")
    with log_to(prefix="mt-eval: "):
        for text in Evaluator(job).run():
            print(text, flush=True)


def export(job: ExportJob) -> None:
    """Converts a model folder to the format of another library."""
    with exit_on_interrupt("mt-export", gigabytes=1):
        from transformer_mt.jobs.export import export
    with log_to(prefix="mt-export: "):
        export(job)


Run = Callable[[Any], float | None]
"""Runs a job and prints its results; may return an objective."""

_RUN: dict[Command, Run] = {
    "train": train,
    "translate": translate,
    "evaluate": evaluate,
    "export": export,
}
"""What each command of the table ``config.JOBS`` runs."""


def main(command: Command, run: Run | None = None) -> None:
    """Runs a command with the arguments in ``sys.argv``: one job, or a sweep of jobs.

    Args:
        command: ``train``, ``translate``, ``evaluate`` or ``export``.
        run: The command's own function unless given.

    Raises:
        SystemExit: The command failed; its code is the exit status.
    """
    program, run_job = JOBS[command].program, run or _RUN[command]
    _set_up_streams()
    with exit_status(program), ExitStack() as stack:
        overrides, flags = list[str](), list[str]()  # flags, and their values
        for before, argument in pairwise(sys.argv):
            is_folder = before in ("--config-dir", "-cd")  # of a sweep, such as train.seed=1
            if is_folder or "=" not in argument or argument.startswith("-"):
                flags.append(argument)
            else:
                overrides.append(_quote_sentence(argument, command))
        stack.callback(print, end="", flush=True)  # a full disk or a closed pipe is reported here
        if "--version" in flags:
            print(program, __version__)
        elif "--help" in flags or "-h" in flags:
            print(help_text(command))
        elif flags or "hydra" in str(overrides):
            _check_flags(command, flags)
            _run_with_hydra(command, run_job, flags, overrides)
        else:
            run_job(compose(overrides, command))  # Hydra's main would compose it twice


def _run_with_hydra(command: Command, run: Run, flags: list[str], overrides: list[str]) -> None:
    """Runs what Hydra's flags ask for, such as ``--cfg`` or a sweep."""
    program, argv = JOBS[command].program, sys.argv
    added = [*_WRITE_NOTHING, f"hydra.job.name={program}"]  # a launcher shows this name

    def task(config: DictConfig) -> float | None:
        sys.argv = argv  # which run.json records
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return _run_of_sweep(command, run, config)
        with exit_status(program):  # inside Hydra as well: it would add lines to an error
            return run(to_job(config, command))

    with explained_errors(command, overrides), ExitStack() as stack:
        parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        parser.add_argument("--cfg", "-c")
        parser.add_argument("--config-dir", "-cd", type=Path)
        parser.add_argument("--config-name", "-cn")
        try:
            given = parser.parse_known_args(flags)[0]
        except ArgumentError as error:
            raise UsageError(f"{error} (see --help)") from None
        if given.config_name and command == "train" and "model=auto" in overrides:
            raise UsageError("model=auto chooses an experiment: it cannot have a --config-name")
        added_dir = given.config_dir
        # Hydra reads this override before there are interpolations.
        place = quoted(f"file://{added_dir.absolute()}") if added_dir else ""
        search_path = [f"hydra.searchpath=[{place}]"] if place else []
        overrides = with_experiment(overrides, command, search_path)
        if not {"-m", "--multirun", "hydra.mode=MULTIRUN"}.isdisjoint([*flags, *overrides]):
            added += _prepare_sweep(command, search_path, overrides)
            if command != "train":  # Hydra insists on writing a multirun.yaml
                scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
                added.append(override("hydra.sweep.dir", scratch))
        register_schema(command)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing
        sys.argv = [argv[0], *flags, *added, *overrides]  # flags may stand anywhere
        run_hydra = hydra.main(str(config_dir(command)), command, version_base="1.3")(task)
        if given.cfg == "job":
            with redirect_stdout(io.StringIO()) as shown:
                run_hydra()
            print(_without_null_fields(shown.getvalue()), end="")
        else:
            run_hydra()


def _without_null_fields(text: str) -> str:
    """A configuration in YAML without the fields that its data sources leave open."""
    values = yaml.safe_load(text)
    if not isinstance(values, dict):  # of --package train.seed
        return text
    data = values.get("data", values)  # --package data has no such level
    for part in ("train", "valid", "test"):
        if isinstance(sources := data.get(part), list):
            data[part] = [{k: v for k, v in source.items() if v is not None} for source in sources]
    header = text[: text.index("\n") + 1] if text.startswith("#") else ""
    return header + OmegaConf.to_yaml(OmegaConf.create(values))


def _prepare_sweep(command: Command, search_path: list[str], overrides: list[str]) -> list[str]:
    """Overrides that make Hydra name the jobs of a sweep after the settings that vary.

    If none varies, all settings but ``run_dir`` are in the name: a single job joins a sweep.
    A search looks for the best value of ``train.best_by``, of which only ``nll`` is minimized.

    Raises:
        UsageError: Jobs of translation or evaluation would share a file, or standard input.
    """
    parsed = OverridesParser.create().parse_overrides(overrides)
    fixed = [item for item in parsed if not item.is_sweep_override()]
    # hydra.sweep.dir has ${hydra:…}, which Hydra's launchers resolve before there is a job.
    common = [str(item.input_line) for item in fixed]
    config = compose_config(command, [*search_path, *common])
    HydraConfig.instance().set_config(config)
    swept = {item.key_or_group for item in parsed if item.is_sweep_override()}
    for item in fixed if swept else ():
        line = str(item.input_line)
        if item.key_or_group in ("output", "report", "attention_output") and "${" not in line:
            hint = f"'{item.key_or_group}=\"NAME.${{hydra:job.num}}\"'"
            raise UsageError(f"every job of the sweep would write {line}: set {hint}")
    if swept and command == "translate" and "input" not in {item.key_or_group for item in parsed}:
        raise UsageError("only the first job of a sweep could read standard input: set input=FILE")
    excluded = {item.key_or_group for item in fixed} - swept if swept else set()
    keys = sorted({*excluded, "run_dir"})
    added = [override("hydra.job.config.override_dirname.exclude_keys", keys)]
    if "direction" in config.hydra.sweeper and config.train.best_by != "nll":
        added.append("hydra.sweeper.direction=maximize")
    return added


def _run_of_sweep(command: Command, run: Run, config: DictConfig) -> float | None:
    """Runs one job of a sweep, in any process; a training job has a folder of its own.

    Raises:
        InputError: The job failed. Its error is printed; the jobs after it run.
    """
    # A job of joblib would pass its own start method on to its processes, which do not know it.
    multiprocessing.set_start_method("spawn", force=True)
    program, hydra_config = JOBS[command].program, HydraConfig.get()
    launcher = LauncherEnv.read()
    title = f"job {hydra_config.job.num} ({hydra_config.job.override_dirname})"
    try:
        with exit_status(f"{program}: {title}"):
            job, where = to_job(config, command), ""
            if isinstance(job, TrainJob):
                folder = Path(hydra_config.sweep.dir, hydra_config.sweep.subdir)
                job, where = replace(job, run_dir=str(folder)), f" -> {folder}"
            if launcher.rank == 0:
                print(f"{program}: {title}{where}", file=sys.stderr)
            return run(job)
    except SystemExit as stop:
        # Under a launcher other ranks may be waiting for this one, so it must exit.
        if stop.code not in (1, 2) or launcher.present:
            raise
        logs = Path(hydra_config.sweep.dir, ".submitit")
        raise InputError(f"{title} failed: its error is above, or in {logs}") from None


def _check_flags(command: Command, flags: list[str]) -> None:
    """Raises ``UsageError`` for a flag that Hydra does not have, such as ``--max-steps``."""
    for flag in flags:
        if flag.startswith("-") and flag.partition("=")[0] not in _FLAGS:
            key = flag.partition("=")[0].lstrip("-").replace("-", "_")
            key, *_ = [*similar(key, setting_names(command)), key]
            hint = f"settings are written {key}=VALUE, without dashes (see --help)"
            raise UsageError(f"unrecognized argument {flag}: {hint}")


def _quote_sentence(argument: str, command: Command) -> str:
    """Quotes a sentence, in which Hydra would take apostrophes and commas as syntax."""
    key, _, text = argument.partition("=")
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key not in JOBS[command].sentences or is_quoted or text in ("", "null"):
        return argument
    return override(key, text)


def _set_up_streams() -> None:
    if sys.stderr is None:  # closed, as by 2>&-: no file, here or in a worker, may get its number
        null, number = os.open(os.devnull, os.O_WRONLY), 2
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
        sys.stderr = open(number, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
        if isinstance(sys.stdout.buffer, RawIOBase):
            # PYTHONUNBUFFERED: a raw file may silently write only a part.
            number = sys.stdout.fileno()
            sys.stdout = open(number, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
