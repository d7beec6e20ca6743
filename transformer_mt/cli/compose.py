"""Composes the configuration of a command and converts it to the dataclass of its job."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Literal, overload

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from transformer_mt.cli import PROGRAMS
from transformer_mt.cli.overrides import with_exact_texts
from transformer_mt.cli.usage_errors import explain, suggest, without_class_names
from transformer_mt.config import (
    CONFIG_DIRS,
    JOBS,
    Command,
    EvaluateJob,
    ExportJob,
    Job,
    TrainJob,
    TranslateJob,
)
from transformer_mt.config.checks import schema
from transformer_mt.errors import UsageError, first_line

_DEFAULT_DATA = "wmt14_en_de"
"""The option of the group ``data`` in ``configs/train.yaml``."""
_HYDRA = RLock()


@overload
def compose(overrides: Sequence[str] = (), command: Literal["train"] = "train") -> TrainJob: ...
@overload
def compose(overrides: Sequence[str], command: Literal["translate"]) -> TranslateJob: ...
@overload
def compose(overrides: Sequence[str], command: Literal["evaluate"]) -> EvaluateJob: ...
@overload
def compose(overrides: Sequence[str], command: Literal["export"]) -> ExportJob: ...
def compose(overrides: Sequence[str] = (), command: Command = "train") -> Job:
    """Composes the job that a command would run with these arguments.

    ``train(compose(["experiment=quickstart"]))`` does what ``mt-train experiment=quickstart`` does.

    Args:
        overrides: The command's arguments, ``key=value``, as Hydra reads them, but for texts.
        command: ``train``, ``translate``, ``evaluate`` or ``export``.

    Returns:
        The job, checked.

    Raises:
        UsageError: An argument cannot be parsed, a key is unknown or a value has the wrong type.
        InputError: A value is invalid, or settings conflict.
    """
    return compose_job(command, overrides)


def compose_job(
    command: Command,
    overrides: Sequence[str],
    config_dir: Path | None = None,
    config_name: str | None = None,
) -> Job:
    """As ``compose``; also with a folder of the user's configurations, or from one of them."""
    overrides = with_experiment(overrides, command, config_dir)
    with hydra_app(command, config_dir), explained_errors(command, overrides):
        given = with_exact_texts(overrides, command)
        config = hydra.compose(config_name or command, given, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # run_dir has ${hydra:runtime.choices.data}
        with open_dict(config):
            del config["hydra"]
        return to_job(config, command)


def compose_config(command: Command) -> DictConfig:
    """The command's configuration without arguments, not resolved; Hydra's own is ``hydra``."""
    with hydra_app(command):
        return hydra.compose(command, return_hydra_config=True)


def register_schema(command: Command) -> None:
    """Adds the command's schema to Hydra's ConfigStore, as ``train_schema`` and so on."""
    ConfigStore.instance().store(name=f"{command}_schema", node=schema(JOBS[command]))


@contextmanager
def hydra_app(command: Command, config_dir: Path | None = None) -> Iterator[Hydra]:
    """Hydra with the command's configurations, in which only this thread uses it.

    Its state is global. What an application of the caller has set there is restored.

    Args:
        command: The command.
        config_dir: A folder of the user's configurations, which precede ours.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise UsageError(f"--config-dir: there is no folder {config_dir}")
    register_schema(command)
    search_path = create_automatic_config_search_path(None, None, str(CONFIG_DIRS[command]))
    if config_dir is not None:
        anchor = SearchPathQuery(provider="schema")
        search_path.prepend("command-line", f"file://{config_dir.absolute()}", anchor)
    with _HYDRA:
        state = Singleton.get_state()
        try:
            GlobalHydra.instance().clear()
            hydra.version.setbase("1.3")
            yield Hydra.create_main_hydra2(PROGRAMS[command], search_path)
        finally:
            Singleton.set_state(state)


def with_experiment(
    overrides: Sequence[str], command: Command, config_dir: Path | None = None
) -> list[str]:
    """Replaces ``model=auto`` of mt-train by the experiment for the number of training pairs."""
    if command != "train" or "model=auto" not in overrides:
        return list(overrides)
    from transformer_mt.jobs.corpus_size import choose_experiment  # loads PyTorch

    def composed(given: Sequence[str]) -> TrainJob:
        job = compose_job("train", given, config_dir)
        assert isinstance(job, TrainJob)
        return job

    others = [override for override in overrides if override != "model=auto"]
    return [*choose_experiment(others, composed), *others]


@contextmanager
def explained_errors(command: Command, overrides: Sequence[str]) -> Iterator[None]:
    """Turns the errors of Hydra, OmegaConf and YAML into one-line usage errors."""
    try:
        yield
    # TypeError: model=[1].
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, YAMLError) as error:
        raise UsageError(explain(error, overrides, command)) from error


def _check_own_data() -> None:
    """Raises ``UsageError`` for own training data beside the default's validation or test set.

    They are rarely meant: ``data=files`` was forgotten. Whoever means them sets ``data``.
    """
    if not HydraConfig.initialized():
        return
    hydra = HydraConfig.get()
    given = [text.lstrip("+~").partition("=")[0] for text in hydra.overrides.task or []]
    default = hydra.runtime.choices.get("data")
    kept = [f"data.{part}" for part in ("valid", "test") if f"data.{part}" not in given]
    if "data.train" in given and "data" not in given and default == _DEFAULT_DATA and kept:
        raise UsageError(
            f"data.train is set, but {' and '.join(kept)} would be WMT14's: add data=files, with "
            f"data.valid or data.valid_pairs=2000; or data={default}, if WMT14's are meant"
        )


def to_job(config: DictConfig, command: Command) -> Job:
    """Converts a composed config to the command's dataclass.

    Raises:
        UsageError: A key is unknown, or a value is missing or of the wrong type.
        InputError: A value is invalid, or settings conflict.
    """
    job = JOBS[command]
    if command == "train":
        _check_own_data()
    try:
        values = OmegaConf.to_container(config, throw_on_missing=True)  # to_object resolves, once
        assert isinstance(values, dict)
        if OmegaConf.get_type(config) is not job:  # --config-name: such as a run's config.yaml
            from transformer_mt import model_folder  # loads more than --help needs

            values = {k: v for k, v in values.items() if k not in model_folder.NON_SETTINGS}
        result = OmegaConf.to_object(OmegaConf.merge(schema(job), values))
        assert isinstance(result, job)
        return result
    except MissingMandatoryValue as error:
        raise UsageError(f"{error.full_key} is not set: set {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        hint = suggest(str(error.full_key), command) if isinstance(error, ConfigKeyError) else ""
        raise UsageError(
            f"{error.full_key}: {without_class_names(first_line(error))}{hint}"
        ) from error
