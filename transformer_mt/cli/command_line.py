"""Flags of the command line, and sweeps: Hydra's, on the composition of ``compose``."""

import signal
import subprocess
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from transformer_mt import __version__
from transformer_mt.cli import PROGRAMS, Run
from transformer_mt.cli.compose import compose_job, hydra_app, hydra_overrides, override
from transformer_mt.cli.help import help_text
from transformer_mt.cli.settings import setting_names
from transformer_mt.cli.usage_errors import similar
from transformer_mt.config import Command
from transformer_mt.distributed import is_launched
from transformer_mt.errors import InputError, UsageError
from transformer_mt.files import read_json
from transformer_mt.run_layout import RUN_INFO

_RUN_FOLDERS = ("hydra.sweep.dir=${run_dir}", "hydra.sweep.subdir=${hydra.job.override_dirname}")
_WRITE_NOTHING = ("hydra/hydra_logging=none", "hydra/job_logging=none", "hydra.output_subdir=null")
"""Overrides that keep Hydra from writing logs and settings of jobs, which write their own."""


def run(command: Command, arguments: list[str], run_job: Run) -> None:
    """Runs a command whose arguments have flags, which may stand anywhere."""
    flags, overrides = _parse(arguments, command)
    if flags.version:
        print(PROGRAMS[command], __version__)
    elif flags.help:
        print(help_text(command))
    elif flags.multirun:
        _sweep(command, flags, overrides)
    elif flags.cfg or flags.shell_completion:
        _show(command, flags, overrides)
    else:
        run_job(compose_job(command, overrides, flags.config_dir, flags.config_name))


def _parse(arguments: list[str], command: Command) -> tuple[Namespace, list[str]]:
    """Divides arguments into flags and overrides."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--multirun", "-m", action="store_true")
    mode.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    mode.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--config-name", "-cn", default=command)
    try:
        flags, overrides = parser.parse_known_args(arguments)
    except ArgumentError as error:
        raise UsageError(f"{error} (see --help)") from None
    for flag in overrides:
        if flag.startswith("-"):
            key = flag.partition("=")[0].lstrip("-").replace("-", "_")
            key, *_ = [*similar(key, setting_names(command)), key]
            hint = f"settings are written {key}=VALUE, without dashes (see --help)"
            raise UsageError(f"unrecognized argument {flag}: {hint}")
    if flags.config_name != command and "model=auto" in overrides:
        raise UsageError("model=auto chooses an experiment: leave out --config-name")
    return flags, overrides


def _show(command: Command, flags: Namespace, overrides: list[str]) -> None:
    """Prints what Hydra's flags ask for: a configuration, or a completion."""
    name = flags.config_name
    given = [] if flags.shell_completion else hydra_overrides(command, overrides, flags.config_dir)
    with hydra_app(command, overrides, flags.config_dir) as app:
        if flags.shell_completion:
            app.shell_completion(name, overrides)
        else:
            app.show_cfg(name, given, flags.cfg, flags.package, flags.resolve)


def _sweep(command: Command, flags: Namespace, overrides: list[str]) -> None:
    """Runs a job of the command for each combination of values, by Hydra's sweeper and launcher.

    Each job is a process of the same command, so that it ends, fails and resumes as any other. The
    folder of a job of ``mt-train`` is named after the settings that vary. If none varies, all but
    ``run_dir`` are in the name: a single job joins a sweep. A search looks for the best value of
    ``train.best_by``, of which only ``nll`` is minimized.
    """
    if is_launched():
        raise UsageError("-m starts torchrun for each job of its own: leave out torchrun here")
    name = flags.config_name
    given = hydra_overrides(command, overrides, flags.config_dir, sweep=True)
    with hydra_app(command, overrides, flags.config_dir) as app:
        parsed = OverridesParser.create().parse_overrides(given)
        fixed = [item for item in parsed if not item.is_sweep_override()]
        lines = [str(item.input_line) for item in fixed]
        config = hydra.compose(name, lines, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # hydra.sweep.dir has ${run_dir}
        swept = {item.key_or_group for item in parsed if item.is_sweep_override()}
        excluded = {item.key_or_group for item in fixed} - swept if swept else set()
        keys = sorted({*excluded, "run_dir"})
        given += [*_WRITE_NOTHING, "hydra.mode=MULTIRUN"]
        if command == "train":
            given = [*_RUN_FOLDERS, *given]  # first, so that the user's own override them
        given.append(override("hydra.job.config.override_dirname.exclude_keys", keys))
        if "direction" in config.hydra.sweeper and config.train.best_by != "nll":
            given.append("hydra.sweeper.direction=maximize")
        where_found = [line for line in lines if line.startswith("hydra.searchpath=")]
        if name != command:
            where_found += ["--config-name", name]
        if flags.config_dir is not None:
            where_found += ["--config-dir", str(flags.config_dir.absolute())]

        def task(config: DictConfig) -> float | None:
            return _run_job(command, where_found, config)

        app.multirun(name, task, given)


def _run_job(command: Command, where_found: list[str], config: DictConfig) -> float | None:
    """Runs one job of a sweep; returns the best score of a training run."""
    values, program = HydraConfig.get(), PROGRAMS[command]
    folder = Path(values.sweep.dir, values.sweep.subdir)
    with open_dict(config):  # only here is there a ${hydra:job.num}
        config.arguments = values.overrides.task
        arguments = OmegaConf.to_container(config.arguments, resolve=True)
    assert isinstance(arguments, list)
    title = f"job {values.job.num} ({values.job.override_dirname})"
    if command == "train":
        arguments.append(override("run_dir", folder))
        print(f"{program}: {title} -> {folder}", file=sys.stderr)
    else:
        print(f"{program}: {title}", file=sys.stderr)
    status = run_process([command, *where_found, *arguments])
    if status in (130, 143):  # interrupted: so is the sweep
        sys.exit(status)
    if status != 0:
        logs = values.launcher.get("submitit_folder")
        where = "above" if logs is None else f"in a folder of {Path(logs).parent}"
        raise InputError(f"{title} failed: its error is {where}")
    path = folder / RUN_INFO  # which only a run has that has trained
    if command != "train" or not path.exists():
        return None
    end = read_json(path).get("end")  # none of an interrupted run whose data were prepared again
    return end and float(end["best"]["score"])


def run_process(arguments: list[str]) -> int:
    """Runs ``python -m transformer_mt.cli`` with these arguments; returns its exit status."""
    module = [sys.executable, "-m", "transformer_mt.cli"]
    with subprocess.Popen([*module, *arguments]) as process:
        # The job saves a checkpoint and ends. A terminal sends Ctrl-C to the job as well.
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while True:
            try:
                status = process.wait()
            except KeyboardInterrupt:
                continue
            signal.signal(signal.SIGTERM, before)
            return status
