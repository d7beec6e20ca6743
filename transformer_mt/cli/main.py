"""The commands: what each of them runs and prints, and the main function that they share.

The jobs load PyTorch, which ``--help`` does not need, so that each is imported when it runs.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from io import RawIOBase, TextIOWrapper
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
from omegaconf import DictConfig

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
    config_dir,
    register_schema,
)
from transformer_mt.config.help import help_text
from transformer_mt.config.settings import setting_names
from transformer_mt.config.usage_errors import similar
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


def train(job: TrainJob) -> None:
    """Trains a model and prints its test scores, or where the prepared data is."""
    with exit_on_interrupt("mt-train", gigabytes=3):
        from transformer_mt.evaluation.scores import to_text
        from transformer_mt.jobs.train import train
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))


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
        from transformer_mt.jobs.evaluate import results
    if sys.stdout is None:
        raise InputError("standard output is closed: send the scores to a file, > FILE")
    with log_to(prefix="mt-eval: "):
        for text in results(job):
            print(text, flush=True)


def export(job: ExportJob) -> None:
    """Converts a model folder to the format of another library."""
    with exit_on_interrupt("mt-export", gigabytes=1):
        from transformer_mt.jobs.export import export
    with log_to(prefix="mt-export: "):
        export(job)


_RUN: dict[Command, Callable[[Any], None]] = {
    "train": train,
    "translate": translate,
    "evaluate": evaluate,
    "export": export,
}
"""What each command of the table ``config.JOBS`` runs."""


def main(command: Command, run: Callable[[Any], None] | None = None) -> None:
    """Runs a command with the arguments in ``sys.argv``: one job, or a sweep of jobs.

    Args:
        command: ``train``, ``translate``, ``evaluate`` or ``export``.
        run: Runs a job and prints its results; the command's own function unless given.

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
                overrides.append(_quote_attention(argument) if command == "evaluate" else argument)
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


def _run_with_hydra(
    command: Command, run: Callable[[Any], None], flags: list[str], overrides: list[str]
) -> None:
    """Runs what Hydra's flags ask for, such as ``--cfg`` or a sweep."""
    program, argv, sweep = JOBS[command].program, sys.argv, None
    added = list(_WRITE_NOTHING)

    def task(config: DictConfig) -> None:
        sys.argv = argv  # which run.json records
        # Inside Hydra as well: it would add lines of its own to an error.
        with exit_status(program), sweep.job() if sweep else nullcontext():
            job = to_job(config, command)
            run(sweep.start(job) if sweep else job)

    with explained_errors(command, overrides), ExitStack() as stack:
        parser = ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd", type=Path)
        parser.add_argument("--config-name", "-cn")
        given = parser.parse_known_args(flags)[0]
        if given.config_name and command == "train" and "model=auto" in overrides:
            raise UsageError("model=auto chooses an experiment: it cannot have a --config-name")
        added_dir = given.config_dir
        # Hydra reads this override before there are interpolations.
        place = quoted(f"file://{added_dir.absolute()}") if added_dir else ""
        search_path = [f"hydra.searchpath=[{place}]"] if place else []
        overrides = with_experiment(overrides, command, search_path)
        if not {"-m", "--multirun"}.isdisjoint(flags) or "hydra.mode=MULTIRUN" in overrides:
            from transformer_mt.cli.sweep import Sweep  # loads PyTorch

            sweep = Sweep(program, overrides)
            # Hydra insists on writing a multirun.yaml; each run's config.yaml has all of it.
            scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
            added += [override("hydra.sweep.dir", scratch), sweep.naming]
        register_schema(command)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing
        sys.argv = [argv[0], *flags, *added, *overrides]  # flags may stand anywhere
        hydra.main(str(config_dir(command)), command, version_base="1.3")(task)()
    if sweep:
        sweep.finish()


def _check_flags(command: Command, flags: list[str]) -> None:
    """Raises ``UsageError`` for a flag that Hydra does not have, such as ``--max-steps``."""
    for flag in flags:
        if flag.startswith("-") and flag.partition("=")[0] not in _FLAGS:
            key = flag.partition("=")[0].lstrip("-").replace("-", "_")
            key, *_ = [*similar(key, setting_names(command)), key]
            hint = f"settings are written {key}=VALUE, without dashes (see --help)"
            raise UsageError(f"unrecognized argument {flag}: {hint}")


def _quote_attention(argument: str) -> str:
    """Quotes ``attention=SENTENCE``, in which Hydra would take apostrophes and commas as syntax."""
    key, _, text = argument.partition("=")
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key != "attention" or is_quoted or text in ("", "null"):
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
