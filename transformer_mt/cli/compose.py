"""Composes the configuration of a command and converts it to the dataclass of its job."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints, overload

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from transformer_mt.cli import PROGRAMS
from transformer_mt.cli.usage_errors import explain, invalid_value
from transformer_mt.config import (
    CONFIG_DIRS,
    JOBS,
    Command,
    EvaluateJob,
    ExportJob,
    Job,
    SourceConfig,
    TrainJob,
    TranslateJob,
)
from transformer_mt.config.checks import schema
from transformer_mt.data.text.lines import as_lines
from transformer_mt.errors import UsageError
from transformer_mt.run_layout import NON_SETTINGS

_DEFAULT_DATA = "wmt14_en_de"
"""The option of the group ``data`` in ``configs/train.yaml``."""


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
        overrides: The command's arguments, ``key=value``, as in Hydra; text needs no quotes.
        command: ``train``, ``translate``, ``evaluate`` or ``export``.

    Returns:
        The job, checked.

    Raises:
        UsageError: An argument cannot be parsed, a key is unknown or a value has the wrong type.
        InputError: A value is invalid, or settings conflict.
        TypeError: ``overrides`` is a single string.
    """
    return compose_job(command, as_lines(overrides))


def compose_job(
    command: Command,
    overrides: Sequence[str],
    config_dir: Path | None = None,
    config_name: str | None = None,
) -> Job:
    """As ``compose``; also with a folder of the user's configurations, or from one of them."""
    given = hydra_overrides(command, overrides, config_dir)
    with hydra_app(command, overrides, config_dir):
        config = hydra.compose(config_name or command, given, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # run_dir has ${hydra:runtime.choices.data}
        if command == "train":
            _check_own_data(config.hydra)
        with open_dict(config):
            del config["hydra"]
        return to_job(config, command)


def compose_config(command: Command) -> DictConfig:
    """The command's configuration without arguments, not resolved; Hydra's own is ``hydra``."""
    with hydra_app(command):
        return hydra.compose(command, return_hydra_config=True)


@contextmanager
def hydra_app(
    command: Command, overrides: Sequence[str] = (), config_dir: Path | None = None
) -> Iterator[Hydra]:
    """Hydra with the command's configurations.

    Its state is global. What an application of the caller has set there is restored. Errors of
    Hydra, OmegaConf and YAML become one-line usage errors.

    Args:
        command: The command, whose schema is ``train_schema`` and so on.
        overrides: Its arguments, for the errors.
        config_dir: A folder of the user's configurations, which precede ours.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise UsageError(f"--config-dir: there is no folder {config_dir}")
    ConfigStore.instance().store(name=f"{command}_schema", node=schema(JOBS[command]))
    search_path = create_automatic_config_search_path(None, None, str(CONFIG_DIRS[command]))
    if config_dir is not None:
        anchor = SearchPathQuery(provider="schema")
        search_path.prepend("command-line", f"file://{config_dir.absolute()}", anchor)
    state = Singleton.get_state()
    try:
        GlobalHydra.instance().clear()
        hydra.version.setbase("1.3")
        yield Hydra.create_main_hydra2(PROGRAMS[command], search_path)
    # TypeError: model=[1].
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, YAMLError) as error:
        raise UsageError(explain(error, overrides, command)) from error
    finally:
        Singleton.set_state(state)


def hydra_overrides(
    command: Command, overrides: Sequence[str], config_dir: Path | None, *, sweep: bool = False
) -> list[str]:
    """The arguments of a command as Hydra shall read them.

    ``model=auto`` of mt-train becomes the experiment for the number of training pairs. Texts are
    quoted, so that they are taken as they were typed: without, ``output=1.50`` would name a file
    ``1.5``, and a sentence would need two pairs of quotes. A text in quotes is left to Hydra, and
    so are ``null``, where it may be null, and, in a sweep, a text with commas or functions.
    """
    if command == "train" and "model=auto" in overrides:
        from transformer_mt.jobs.corpus_size import choose_experiment  # loads PyTorch

        others = [override for override in overrides if override != "model=auto"]
        experiment = choose_experiment(
            others, lambda given: cast(TrainJob, compose_job("train", given, config_dir))
        )
        overrides = [*experiment, *others]
    result = []
    for argument in overrides:
        name, _, text = argument.partition("=")
        kind: Any = JOBS[command]
        for field in name.lstrip("+").split("."):
            kind = get_type_hints(kind).get(field) if is_dataclass(kind) else None
        is_exact = kind in (str, str | None) and not _LEFT_TO_HYDRA.fullmatch(text)
        is_exact &= kind is str or text.lower() != "null"
        is_exact &= not (sweep and re.search("[,(]", text))
        result.append(f"{name}={_quoted(text)}" if is_exact else argument)
    return result


_LEFT_TO_HYDRA = re.compile(r"""|'.*'|".*\"""", re.DOTALL)
"""No text, or text in quotes."""


def override(key: str, value: object) -> str:
    """The argument ``key=value`` of a command that sets a setting to exactly this value.

    The exception is text with ``${``, which Hydra reads as an interpolation.

    Args:
        key: The name of the setting.
        value: None, a number, text, a path, a data source, or a list of them.
    """
    return f"{key}={_argument(value)}"


def _argument(value: object) -> str:
    if isinstance(value, SourceConfig):
        fields = [f"{k}: {_quoted(v)}" for k, v in asdict(value).items() if v is not None]
        return f"{{{', '.join(fields)}}}"
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, int | float):
        return str(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """The text in the quotes of Hydra's grammar."""
    return QuotedString(text, Quote.double).with_quotes()


def _check_own_data(hydra_config: DictConfig) -> None:
    """Raises ``UsageError`` for own training data beside the default's validation or test set.

    They are rarely meant: ``data=files`` was forgotten. Whoever means them sets ``data``.
    """
    given = [text.lstrip("+~").partition("=")[0] for text in hydra_config.overrides.task]
    default = hydra_config.runtime.choices.get("data")
    kept = [f"data.{part}" for part in ("valid", "test") if f"data.{part}" not in given]
    if "data.train" in given and "data" not in given and default == _DEFAULT_DATA and kept:
        raise UsageError(
            f"data.train is set, but {' and '.join(kept)} would be WMT14's: add data=files, with "
            f"data.valid or data.valid_pairs=N; or data={default}, if WMT14's are meant"
        )


def to_job(config: DictConfig, command: Command) -> Job:
    """Converts a composed config to the command's dataclass."""
    job = JOBS[command]
    try:
        values = OmegaConf.to_container(config, throw_on_missing=True)  # to_object resolves, once
        assert isinstance(values, dict)
        if command == "train":  # with --config-name perhaps of a run's config.yaml
            for key in NON_SETTINGS:
                values.pop(key, None)
        result = OmegaConf.to_object(OmegaConf.merge(schema(job), values))
        assert isinstance(result, job)
        return result
    except MissingMandatoryValue as error:
        raise UsageError(f"{error.full_key} is not set: set {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise UsageError(f"{error.full_key}: {invalid_value(error, command)}") from error
