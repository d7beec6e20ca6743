"""One-line explanations of Hydra's and OmegaConf's errors: their messages, and what was meant."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from transformer_mt.cli.settings import group_options, setting_names
from transformer_mt.config import CONFIG_DIRS, Command, SourceConfig
from transformer_mt.config.source import SOURCE_FIELDS
from transformer_mt.errors import first_line

_HINTS = {
    "ListConfig": "; a list is written 'KEY=[ITEM, ITEM]'",
    "CleaningConfig": "; a preset is chosen by cleaning=none, paper or standard",
    "read-only": "; a list is set as a whole: 'KEY=[ITEM, ITEM]'",
    "SourceConfig": "; a data source is written {tsv: FILE} or {src: FILE, tgt: FILE}",
}
"""What to write instead, by a word of the message."""


def explain(error: Exception, overrides: Sequence[str], command: Command) -> str:
    """Explains why a configuration could not be composed, from the exception of a library."""
    if isinstance(error, OverrideParseException):
        if "=" not in error.override:
            return f"{error.override!r} is not KEY=VALUE: see the examples of --help"
        return (
            f"cannot parse {error.override!r}: write KEY=VALUE with matching brackets, and quotes "
            "around a value with characters other than a-z, A-Z, 0-9, / . - _: "
            "'KEY=\"a b\"' or 'KEY=[\"~/a\"]'"
        )
    message = re.split(r"\n(?:To append|Config search path)", str(error))[0].strip()
    message = " ".join(message.replace("\n\n", ". ").split())
    cause = error.__cause__ or error.__context__
    if "@experiment." in message:  # an experiment with defaults, but without that line
        return message + suggest("experiment", command)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).partition("/")
        return _unknown_option(group, option, error.options)
    if not isinstance(cause, OmegaConfBaseException):
        return f"{message} (given: {shlex.join(overrides) or 'no settings'})"
    given = re.search(r"override '([\w.]+)'", message)
    message = f"{message.rstrip('.')}: {invalid_value(cause, command, given and given[1])}"
    return message + next((hint for word, hint in _HINTS.items() if word in message), "")


def invalid_value(error: OmegaConfBaseException, command: Command, key: str | None = None) -> str:
    """What OmegaConf says of a value or an unknown key, without the names of our dataclasses.

    Args:
        error: The error. It names the first unknown part of a key only.
        command: The command.
        key: The whole key, if it is known.
    """
    message = first_line(error).rstrip(".")
    if not isinstance(error, ConfigKeyError | ConfigAttributeError):
        return message
    if error.object_type is SourceConfig:
        known = ", ".join(item.name for item in fields(SourceConfig))
        return f"a data source has no {error.key!r}; it may have {known}"
    message = re.sub(r"Key '\w+' not in '\w+'", "there is no such setting", message)
    hint = suggest(key or str(error.full_key or error.key), command)
    return message + (hint or "; --help lists all settings")


def _unknown_option(group: str, option: str, listed: Sequence[str]) -> str:
    """Explains that a group has no such option: which there are, and which is similar."""
    # Hydra's list has options of other folders, too (--config-dir), but none of inner folders.
    auto = ["auto"] * (group == "model")  # not a file: cli/compose.py replaces it by an experiment
    known = [*listed, *auto, *(name for name in group_options(group) if name not in listed)]
    near = get_close_matches(option, known, n=1, cutoff=0.7)
    hint = f"did you mean {group}={near[0]}? " if near else ""
    return f"there is no {group}={option}; {hint}{group} is one of: {', '.join(known)}"


def suggest(key: str, command: Command) -> str:
    """What was meant by an unknown key, such as ``; did you mean …?``; empty if nothing is similar.

    Args:
        key: The dotted key.
        command: The command.
    """
    group, _, leaf = key.rpartition(".")
    kinds = [kind.split("+") for kind in SOURCE_FIELDS if leaf in kind.split("+")]
    if command == "train" and group in ("", "data") and kinds:
        fields = ", ".join(f"{name}: FILE" for name in kinds[0])
        return f"; a data source is written 'data.train=[{{{fields}}}]'"
    if command == "train" and group == "decode" and leaf in setting_names("translate"):
        return f"; it is a setting of mt-translate, {leaf}=VALUE"
    groups = {path.name for path in CONFIG_DIRS[command].iterdir() if path.is_dir()}
    if key in groups:  # also of a file experiment/mine.yaml, read as experiment.*
        file = f"a file in a folder {key}/ must begin with the line '# @package _global_'"
        return f"; {key} is one of {', '.join(group_options(key))}; {file}"
    if near := similar(key, setting_names(command)):
        return f"; did you mean {' or '.join(near[:2])}?"
    if any(name.startswith(f"data.{group}.") for name in setting_names(command)):
        return f"; its settings are written data.{group}.NAME"
    return ""


def similar(key: str, known: Sequence[str]) -> list[str]:
    """The known keys that resemble a key, the most similar first."""
    group, _, leaf = key.rpartition(".")
    near = [name for name in known if f"_{leaf}_" in f"_{name.rpartition('.')[2]}_"]
    near.sort(key=lambda name: (name.rpartition(".")[2] != leaf, name.rpartition(".")[0] != group))
    same_group = [name for name in known if name.rpartition(".")[0] == group]
    for names, cutoff in ((same_group, 0.6), (known, 0.75)):
        leaves = {name.rpartition(".")[2]: name for name in names}
        near = near or [leaves[x] for x in get_close_matches(leaf, leaves, n=2, cutoff=cutoff)]
    return near
