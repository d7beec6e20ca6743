"""Hydra's flags: sweeps (``--multirun``), ``--cfg``, configurations from elsewhere, completion.

A command without one does not need Hydra's own main function.
"""

import multiprocessing
import os
import sys
from argparse import ArgumentError, ArgumentParser
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

from transformer_mt.cli import PROGRAMS, Run
from transformer_mt.cli.compose import (
    compose_config,
    explained_errors,
    register_schema,
    to_job,
    with_experiment,
)
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.cli.overrides import override, quoted, with_exact_texts
from transformer_mt.cli.settings import setting_names
from transformer_mt.cli.usage_errors import similar
from transformer_mt.config import CONFIG_DIRS, Command, TrainJob, TranslateJob
from transformer_mt.distributed.environment import current_rank, is_launched
from transformer_mt.errors import InputError, UsageError
from transformer_mt.run_layout import RUN_INFO

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


def run_with_hydra(command: Command, run: Run, flags: list[str], overrides: list[str]) -> None:
    """Runs what Hydra's flags ask for, such as ``--cfg`` or a sweep.

    Raises:
        UsageError: There is no such flag, or it cannot be used so.
    """
    _check_flags(flags, command)
    program, argv = PROGRAMS[command], sys.argv
    added = [*_WRITE_NOTHING, f"hydra.job.name={program}"]  # a launcher shows this name

    def task(config: DictConfig) -> float | None:
        sys.argv = argv  # which run.json records
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return _run_of_sweep(command, run, config)
        with exit_status(program):  # inside Hydra as well: it would add lines to an error
            return run(to_job(config, command))

    with explained_errors(command, overrides), ExitStack() as stack:
        parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        parser.add_argument("--cfg", "-c")  # which would be taken for an abbreviation
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
        if command == "train":
            overrides = with_experiment(overrides, search_path)
        sweep = not {"-m", "--multirun", "hydra.mode=MULTIRUN"}.isdisjoint([*flags, *overrides])
        overrides = with_exact_texts(overrides, command, sweep=sweep)
        if sweep:
            added += _prepare_sweep(command, search_path, overrides)
            if command == "train":
                stack.callback(_name_table, HydraConfig.get().sweep.dir)
            else:  # Hydra insists on writing a multirun.yaml
                scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
                added.append(override("hydra.sweep.dir", scratch))
        register_schema(command)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing
        sys.argv = [argv[0], *flags, *added, *overrides]  # flags may stand anywhere
        hydra.main(str(CONFIG_DIRS[command]), command, version_base="1.3")(task)()


def _prepare_sweep(command: Command, search_path: list[str], overrides: list[str]) -> list[str]:
    """Overrides that make Hydra name the jobs of a sweep after the settings that vary.

    If none varies, all settings but ``run_dir`` are in the name: a single job joins a sweep.
    A search looks for the best value of ``train.best_by``, of which only ``nll`` is minimized.

    Raises:
        UsageError: Jobs of translation or evaluation would write the same file.
    """
    parsed = OverridesParser.create().parse_overrides(overrides)
    fixed = [item for item in parsed if not item.is_sweep_override()]
    # hydra.sweep.dir has ${hydra:…}, which Hydra's launchers resolve before there is a job.
    common = [str(item.input_line) for item in fixed]
    config = compose_config(command, [*search_path, *common])
    HydraConfig.instance().set_config(config)
    swept = {item.key_or_group for item in parsed if item.is_sweep_override()}
    for item in parsed:
        key, line = item.key_or_group, str(item.input_line)
        shared = swept - {key} and "${" not in line and item.value() is not None
        if key in ("output", "report", "attention_output") and shared:
            hint = f"'{key}=\"NAME.${{hydra:job.num}}\"'"
            raise UsageError(f"jobs of the sweep would write the same files, {line}: set {hint}")
    excluded = {item.key_or_group for item in fixed} - swept if swept else set()
    keys = sorted({*excluded, "run_dir"})
    added = [override("hydra.job.config.override_dirname.exclude_keys", keys)]
    if "direction" in config.hydra.sweeper and config.train.best_by != "nll":
        added.append("hydra.sweeper.direction=maximize")
    return added


def _name_table(folder: str) -> None:
    """Names the table of the runs below a folder, unless none was started."""
    if any(Path(folder).glob(f"*/**/{RUN_INFO}")):
        table = f"scripts/compare_runs.py {folder}"
        print(f"mt-train: the runs of the sweep beside each other: {table}", file=sys.stderr)


def _run_of_sweep(command: Command, run: Run, config: DictConfig) -> float | None:
    """Runs one job of a sweep, in any process; a training job has a folder of its own.

    Raises:
        InputError: The job failed. Its error is printed; the jobs after it run.
    """
    # A job of joblib would pass its own start method on to its processes, which do not know it.
    multiprocessing.set_start_method("spawn", force=True)
    program, hydra_config = PROGRAMS[command], HydraConfig.get()
    title = f"job {hydra_config.job.num} ({hydra_config.job.override_dirname})"
    try:
        with exit_status(f"{program}: {title}"):
            job, where = to_job(config, command), ""
            if isinstance(job, TrainJob):
                folder = Path(hydra_config.sweep.dir, hydra_config.sweep.subdir)
                job, where = replace(job, run_dir=str(folder)), f" -> {folder}"
                sys.argv = _argv_of_one_job(hydra_config, folder)
            if isinstance(job, TranslateJob) and job.input is None and hydra_config.job.num > 0:
                raise InputError("only the first job can read standard input: set input=FILE")
            if current_rank() == 0:
                print(f"{program}: {title}{where}", file=sys.stderr)
            return run(job)
    except SystemExit as stop:
        # Under a launcher other ranks may be waiting for this one, so it must exit.
        if stop.code not in (1, 2) or is_launched():
            raise
        logs = hydra_config.launcher.get("submitit_folder")
        where = "above" if logs is None else f"in a folder of {Path(logs).parent}"
        raise InputError(f"{title} failed: its error is {where}") from None


def _argv_of_one_job(hydra_config: HydraConf, run_dir: Path) -> list[str]:
    """The command of one job of a sweep, which torchrun runs and ``run.json`` records."""
    flags = []
    for source in hydra_config.runtime.config_sources:
        if source.provider == "command-line":
            flags += ["--config-dir", source.path]
    if hydra_config.job.config_name != "train":
        flags += ["--config-name", str(hydra_config.job.config_name)]
    paths = [line for line in hydra_config.overrides.hydra if line.startswith("hydra.searchpath=")]
    run_folder = override("run_dir", str(run_dir.absolute()))
    return ["mt-train", *flags, *paths, *hydra_config.overrides.task, run_folder]


def _check_flags(flags: list[str], command: Command) -> None:
    """Raises ``UsageError`` for a flag that Hydra does not have, such as ``--max-steps``."""
    for flag in flags:
        if flag.startswith("-") and flag.partition("=")[0] not in _FLAGS:
            key = flag.partition("=")[0].lstrip("-").replace("-", "_")
            key, *_ = [*similar(key, setting_names(command)), key]
            hint = f"settings are written {key}=VALUE, without dashes (see --help)"
            raise UsageError(f"unrecognized argument {flag}: {hint}")
