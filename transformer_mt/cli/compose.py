"""Composes the configuration of a command and converts it to the dataclass of its job."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from threading import Lock
from typing import Any, Literal, get_args, get_origin, get_type_hints, overload

import hydra
from antlr4 import CommonTokenStream, InputStream
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser
from hydra.grammar.gen.OverrideParserVisitor import OverrideParserVisitor
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from transformer_mt.cli.usage_errors import explain, suggest, without_class_names
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
from transformer_mt.errors import InputError, UsageError, first_line

_DEFAULT_DATA = "wmt14_en_de"
"""The option of the group ``data`` in ``configs/train.yaml``."""
_NUMBER = r"[+-]?(?:inf|nan|[\d._]+(?:e[+-]?\d+)?)"
_PLAIN = re.compile(rf"(?!(?:null|true|false|{_NUMBER})$)[\w./:@+-]+", re.IGNORECASE | re.ASCII)
"""Text that Hydra reads as it is, without quotes."""
_HYDRA = Lock()


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
        fields = [f"{k}: {quoted(v)}" for k, v in asdict(value).items() if v is not None]
        return f"{{{', '.join(fields)}}}"
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """The text in the quotes of Hydra's grammar."""
    return QuotedString(text, Quote.double).with_quotes()


def with_exact_texts(
    overrides: Sequence[str], command: Command, *, sweep: bool = False
) -> list[str]:
    """Quotes the texts among the arguments, so that Hydra's grammar takes them as they were typed.

    Without, ``output=1.50`` would name a file ``1.5``, and a sentence would need two pairs of
    quotes. A value in quotes is left to Hydra, and so are, for texts that may be null, ``null``,
    and in a sweep commas and functions: there, and in lists, only numbers and truth values are
    quoted.

    Args:
        overrides: Arguments, ``key=value``.
        command: The command.
        sweep: Whether they are those of a sweep.
    """
    return [_with_exact_text(argument, JOBS[command], sweep) for argument in overrides]


def _with_exact_text(argument: str, job: type, sweep: bool) -> str:
    name, _, text = argument.partition("=")
    kind: Any = job
    for field in name.lstrip("+").split("."):
        kind = get_type_hints(kind).get(field) if is_dataclass(kind) else None
    if list in (get_origin(kind), *map(get_origin, get_args(kind))):
        return _with_quoted_numbers(argument)
    if kind is not str and str not in get_args(kind):
        return argument
    if sweep:
        return _with_quoted_numbers(argument)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    is_null = kind is not str and text.lower() == "null"
    return argument if is_quoted or is_null or not text else f"{name}={quoted(text)}"


def _with_quoted_numbers(argument: str) -> str:
    """The argument with quotes around each number and truth value in it."""
    lexer = OverrideLexer(InputStream(argument))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()
    numbers = _Numbers()
    numbers.visit(parser.override())
    if parser.getNumberOfSyntaxErrors():
        return argument  # which Hydra reports
    for token in reversed(numbers.tokens):
        argument = f'{argument[: token.start]}"{token.text}"{argument[token.stop + 1 :]}'
    return argument


class _Numbers(OverrideParserVisitor):
    """Collects the values in an argument that Hydra would read as numbers or truth values."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def visitPrimitive(self, ctx: Any) -> None:  # noqa: N802
        """Collects a value that is one word."""
        tokens = [child.symbol for child in ctx.getChildren()]
        words = [token for token in tokens if token.type != OverrideLexer.WS]
        if len(words) == 1 and words[0].type in (
            OverrideLexer.INT,
            OverrideLexer.FLOAT,
            OverrideLexer.BOOL,
        ):
            self.tokens += words


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
