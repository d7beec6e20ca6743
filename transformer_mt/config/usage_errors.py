"""One-line explanations of Hydra's and OmegaConf's errors: what is wrong and what to do."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from transformer_mt.config.settings import Command, primary_config_dir, setting_names
from transformer_mt.errors import first_line


def explain(error: Exception, overrides: Sequence[str], command: Command) -> str:
    """Explains why a configuration could not be composed, from the exception of a library."""
    message, cause = str(error), error.__cause__ or error.__context__
    if isinstance(error, OverrideParseException):
        return _explain_syntax(error.override)
    if isinstance(error, MissingConfigException) and error.options:
        folder = primary_config_dir(command)
        return _explain_option(str(error.missing_cfg_file), error.options, folder)
    if ambiguous := re.match(r"Ambiguous value for argument '(.*)'$", message, re.MULTILINE):
        return f"{_explain_syntax(ambiguous[1])}; to run one job for each value, add -m"
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return _explain_unknown_key(cause, message, command)
    if isinstance(cause, OmegaConfBaseException):
        override = message.removeprefix("Error merging override ")
        subject = override if override != message else cause.full_key
        return f"{subject}: {_explain_type(str(override), first_line(cause))}"
    message = re.split(r"\n(?:To append|Config search path)", message)[0].strip()
    if "No match in the defaults list" in message:
        message += " (a config of your own has no groups: set GROUP.SETTING=VALUE)"
    return f"{message} (given: {shlex.join(overrides) or 'nothing'})"


def _explain_unknown_key(
    cause: ConfigKeyError | ConfigAttributeError, message: str, command: Command
) -> str:
    place = re.match(r"In '.*?':|Could not override '(?P<key>.*?)'\.", message)
    key = str(cause.full_key or cause.key)
    override = place["key"] if place else None
    if override is not None and override.startswith(f"{key}."):  # such as batch.size, without batch
        key = override
    if override is not None and not key.startswith(override):  # an item of a list
        item = cause.object_type
        names = [f.name for f in fields(item)] if is_dataclass(item) else []
        return f"unknown key {key!r} in {override}; choose from {', '.join(names)}"
    settings = setting_names(command)
    groups = {path.name for path in primary_config_dir(command).iterdir() if path.is_dir()}
    if key in groups.difference(settings):  # a file experiment/mine.yaml, read as experiment.*
        return (
            f"unknown key {key!r}: a file in a folder {key}/ must begin with the line "
            "'# @package _global_'"
        )
    file = f"{place[0]} " if place and override is None else ""
    hint = suggest(key, sorted(groups.union(settings))) or "; --cfg job lists all keys"
    return f"{file}unknown key {key!r}{hint}"


def _explain_type(override: str, message: str) -> str:
    if "is not a ListConfig" in message or "merge DictConfig with ListConfig" in message:
        return "give a list, as [a,b]"
    if "is not a subclass of SourceConfig" in message:
        return "give each source as {src: FILE, tgt: FILE}, {tsv: FILE} or similar"
    if re.search(r"is not a subclass of \w+Config", message):
        key, _, value = override.partition("=")
        group = key.rpartition(".")[2]
        return f"set {key}.SETTING=VALUE; a file of the group is chosen with {group}={value}"
    return message


def _explain_syntax(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override!r} is not of the form key=value (see --help)"
    if value[:1] in ("[", "{") or "[" in key:
        return (
            f"cannot parse {override!r}: check its brackets and commas, quote the whole argument, "
            "and put each value with characters other than letters, digits, / . - _ in its own "
            'quotes, as "~/a"'
        )
    quoted = value.replace("\\", "\\\\").replace('"', r"\"")
    argument = shlex.quote(f'{key}="{quoted}"')
    return f"cannot parse {override!r}: special characters need two pairs of quotes, {argument}"


def _explain_option(path: str, options: Sequence[str], config_folder: Path) -> str:
    group, _, name = path.rpartition("/")
    top, _, rest = path.partition("/")
    if top != "hydra" and (config_folder / top).is_dir():  # Hydra omits the subfolders of a group
        files = (config_folder / top).rglob("*.yaml")
        nested = {f.relative_to(config_folder / top).with_suffix("").as_posix() for f in files}
        group, name, options = top, rest, sorted(nested.union(options))
    hint = suggest(name, options) or f"; choose from {', '.join(options)}"
    if top == "model" and Path(name).parent != Path():
        hint += "; to start from the weights of a model folder, set train.init_from=FOLDER"
    return f"there is no {group}={name}{hint}"


def suggest(key: str, known: Sequence[str]) -> str:
    """``; did you mean …?``, or an empty string if no known key is similar."""
    near = similar(key, known)
    return f"; did you mean {' or '.join(near[:2])}?" if near else ""


def similar(key: str, known: Sequence[str]) -> list[str]:
    """The known keys that resemble a key, the most similar first."""
    leaf = key.rpartition(".")[2]
    leaves = {name: name.rpartition(".")[2] for name in known}
    near = [name for name in known if leaves[name] == leaf]
    near = near or [name for name in known if leaves[name].endswith(f"_{leaf}")]  # lr: peak_lr
    near = near or [name for name in known if leaves[name].startswith(f"{leaf}_")]  # beam
    near.sort(key=lambda name: name.rpartition(".")[0] != key.rpartition(".")[0])
    return near or get_close_matches(key, known, n=2, cutoff=0.7)
