"""The main function of the commands: composes the configuration, and runs the job or the sweep."""

import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
from omegaconf import DictConfig

from transformer_mt import __version__
from transformer_mt.cli import commands
from transformer_mt.cli.compose import compose, explained_errors, to_job, with_experiment
from transformer_mt.cli.entry_points import exit_status
from transformer_mt.config import JOBS, Command, primary_config_dir, register_schema
from transformer_mt.config.help import help_text
from transformer_mt.config.settings import setting_names
from transformer_mt.config.usage_errors import similar
from transformer_mt.errors import UsageError

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


def main(command: Command, run: Callable[[Any], None] | None = None) -> None:
    """Runs a command with the arguments in ``sys.argv``: one job, or a sweep of jobs.

    Args:
        command: ``train``, ``translate``, ``evaluate`` or ``export``.
        run: Runs a job and prints its results; the command's own function unless given.

    Raises:
        SystemExit: The command failed; its code is the exit status.
    """
    program, run_job = JOBS[command].program, run or getattr(commands, command)
    _set_up_streams()
    with exit_status(program), ExitStack() as stack:
        overrides, flags = list[str](), list[str]()  # flags, and their values
        for argument in sys.argv[1:]:
            if "=" not in argument or argument.startswith("-"):
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
        if not {"-m", "--multirun"}.isdisjoint(flags) or "hydra.mode=MULTIRUN" in overrides:
            from transformer_mt.cli.sweep import Sweep  # loads PyTorch

            sweep = Sweep(program, overrides)
            # Hydra insists on writing a multirun.yaml; each run's config.yaml has all of it.
            scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
            added += [f"hydra.sweep.dir='{scratch}'", sweep.naming]
        overrides = with_experiment(overrides, command, _search_path(flags))
        register_schema(command)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing
        sys.argv = [argv[0], *flags, *added, *overrides]  # flags may stand anywhere
        folder = str(primary_config_dir(command))
        hydra.main(version_base="1.3", config_path=folder, config_name=command)(task)()
    if sweep:
        sweep.finish()


def _search_path(flags: list[str]) -> list[str]:
    """What ``--config-dir`` does, as an override."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    folder = parser.parse_known_args(flags)[0].config_dir
    return [f"hydra.searchpath=['file://{folder.absolute()}']"] if folder else []


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
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if key != "attention" or quoted or text in ("", "null"):
        return argument
    # In Hydra's strings a backslash stands for itself, except before a quote.
    escaped = re.sub(r'(\\*)("|$)', lambda m: 2 * m[1] + ('\\"' if m[2] else ""), text)
    return f'attention="{escaped}"'


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
