"""The main function of the commands: compose the configuration, run the job or the sweep."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from io import RawIOBase, TextIOWrapper
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

import hydra.version

# The two functions behind @hydra.main, which does not let us report an unknown flag.
# pyproject.toml holds Hydra below 1.4.
from hydra._internal.utils import _run_hydra, get_args_parser
from omegaconf import DictConfig

from transformer_mt import __version__
from transformer_mt.cli.compose import explained_errors, register_schemas, to_job
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.config.help import help_text
from transformer_mt.config.settings import PROGRAMS, Command, primary_config_dir
from transformer_mt.errors import UsageError

if TYPE_CHECKING:
    from transformer_mt.cli.sweep import Sweep

_STDERR = 2
"""Number of the standard error stream."""

_WRITE_NOTHING = (
    *("hydra/hydra_logging=none", "hydra/job_logging=none"),
    *("hydra.run.dir=.", "hydra.output_subdir=null", "hydra.job.chdir=false"),
)
"""Overrides with which Hydra writes no files of its own; our configs contain them."""


def main(command: Command, run: Callable[[Any], None]) -> None:
    """Compose the command's configuration from ``sys.argv`` and run the job, or a sweep of jobs.

    ``run`` runs one job and prints its results. A failure raises SystemExit with the exit status.
    """
    program = PROGRAMS[command]
    _set_up_streams()
    sweep: Sweep | None = None

    def task(config: DictConfig) -> None:
        # Inside Hydra as well: it would add lines of its own to an error.
        with exit_status(program), sweep.job() if sweep else nullcontext():
            job = to_job(config, command)
            run(sweep.start(job) if sweep else job)

    with exit_status(program), ExitStack() as stack:
        if "--version" in sys.argv[1:]:  # Hydra would print its own
            print(program, __version__)
            return
        register_schemas()
        parser = get_args_parser()
        parser.error = _refuse_flags  # type: ignore[method-assign]
        args = parser.parse_intermixed_args()
        if args.help:
            print(help_text(command))
            return
        overrides = list(args.overrides)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing
        hydra.version.setbase("1.3")
        stack.callback(print, end="", flush=True)  # a full disk or a closed pipe is reported here
        with explained_errors(command, overrides):
            if args.multirun or "hydra.mode=MULTIRUN" in overrides:
                sweep = _new_sweep(program, overrides)
                # Hydra insists on writing a multirun.yaml; each run's config.yaml has all of it.
                scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
                args.overrides.insert(0, f"hydra.sweep.dir='{scratch}'")
            if args.config_name:  # replaces our config, which sets these
                args.overrides[:0] = _WRITE_NOTHING
            _run_hydra(
                args=args,
                args_parser=parser,
                task_function=task,
                config_path=str(primary_config_dir(command)),
                config_name=command,
            )
        if sweep:
            sweep.finish()


def _new_sweep(program: str, overrides: list[str]) -> "Sweep":
    from transformer_mt.cli.sweep import Sweep  # loads PyTorch, which --help does not need

    return Sweep(program, overrides)


@contextmanager
def messages_to_stderr(program: str) -> Iterator[None]:
    """Print the log messages for the user to standard error, after the name of the program."""
    loggers = [logging.getLogger(f"transformer_mt.{name}") for name in ("jobs", "hub_models")]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{program}: %(message)s"))
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def _set_up_streams() -> None:
    if sys.stderr is None:  # closed, as by 2>&-: no file, here or in a worker, may get its number
        null = os.open(os.devnull, os.O_WRONLY)
        if null != _STDERR:
            os.dup2(null, _STDERR)
            os.close(null)
        os.set_inheritable(_STDERR, True)
        sys.stderr = open(_STDERR, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
        if isinstance(sys.stdout.buffer, RawIOBase):
            # PYTHONUNBUFFERED: a raw file may silently write only a part.
            number = sys.stdout.fileno()
            sys.stdout = open(number, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115


def _refuse_flags(message: str) -> NoReturn:
    """Replaces ``ArgumentParser.error``, which prints Hydra's usage."""
    flag = re.fullmatch(r"unrecognized arguments: --?([\w.-]+).*", message)
    if flag:
        key = flag[1].replace("-", "_")
        message += f"; settings are written {key}=VALUE, without dashes"
    raise UsageError(f"{message} (see --help)")
