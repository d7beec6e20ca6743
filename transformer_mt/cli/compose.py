"""Composes the configuration of a command and converts it to the dataclass of its job."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Literal, overload

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

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
from transformer_mt.errors import InputError, UsageError, first_line

_DEFAULT_DATA = "wmt14_en_de"
"""The option of the group ``data`` in ``configs/train.yaml``."""
_HYDRA = Lock()


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
    if command == "train":
        overrides = with_experiment(overrides)
    with exclusive_hydra(), explained_errors(command, overrides):
        config = compose_config(command, with_exact_texts(overrides, command))
        HydraConfig.instance().set_config(config)  # run_dir has ${hydra:runtime.choices.data}
        with open_dict(config):
            del config["hydra"]
        return to_job(config, command)


def register_schema(command: Command) -> None:
    """Adds the command's schema to Hydra's ConfigStore, as ``train_schema`` and so on."""
    ConfigStore.instance().store(name=f"{command}_schema", node=schema(JOBS[command]))


def compose_config(command: Command, overrides: Sequence[str] = ()) -> DictConfig:
    """The command's configuration, not resolved; Hydra's own is its node ``hydra``."""
    folder = CONFIG_DIRS[command]
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: reinstall transformer_mt")
    register_schema(command)
    with hydra.initialize_config_dir(str(folder), version_base="1.3"):
        return hydra.compose(command, list(overrides), return_hydra_config=True)


@contextmanager
def exclusive_hydra() -> Iterator[None]:
    """Context in which only this thread uses Hydra, whose state is global.

    What an application of the caller has set there is restored.
    """
    with _HYDRA:
        state = Singleton.get_state()
        try:
            GlobalHydra.instance().clear()
            yield
        finally:
            Singleton.set_state(state)


def with_experiment(overrides: Sequence[str], search_path: Sequence[str] = ()) -> list[str]:
    """Replaces ``model=auto`` by the experiment for the number of training pairs.

    Args:
        overrides: The arguments of ``mt-train``.
        search_path: Overrides by which the configuration of the data is found, too.
    """
    if "model=auto" not in overrides:
        return list(overrides)
    from transformer_mt.jobs.corpus_size import choose_experiment  # loads PyTorch

    others = [override for override in overrides if override != "model=auto"]
    return [*choose_experiment([*search_path, *others], compose), *others]


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
