"""One-line explanations of Hydra's and OmegaConf's errors: their messages, and what was meant."""

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from hydra.errors import OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from transformer_mt.config import Command, config_dir
from transformer_mt.config.settings import setting_names
from transformer_mt.errors import first_line

_HINTS = {
    "'dict' to string": "; this is one setting, without others in it: write KEY=VALUE",
    "ListConfig": "; a list is written 'KEY=[ITEM, ITEM]'",
    "SourceConfig": "; a data source is written {tsv: FILE} or {src: FILE, tgt: FILE}",
}
"""What to write instead, by a word of the message."""


def explain(error: Exception, overrides: Sequence[str], command: Command) -> str:
    """Explains why a configuration could not be composed, from the exception of a library."""
    if isinstance(error, OverrideParseException):
        return (
            f"cannot parse {error.override!r}: write KEY=VALUE with matching brackets, and quotes "
            "around a value with characters other than letters, digits, / . - _: "
            "'KEY=\"a b\"' or 'KEY=[\"~/a\"]'"
        )
    message = re.split(r"\n(?:To append|Config search path)", str(error))[0].strip()
    message = " ".join(message.replace("\n\n", ". ").split())
    cause = error.__cause__ or error.__context__
    if "@experiment." in message:  # an experiment with defaults, but without that line
        return message + suggest("experiment", command)
    if not isinstance(cause, OmegaConfBaseException):
        return f"{message} (given: {shlex.join(overrides) or 'nothing'})"
    message = f"{message.rstrip('.')}: {first_line(cause).rstrip('.')}"
    message += next((hint for word, hint in _HINTS.items() if word in message), "")
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        message += (
            suggest(str(cause.full_key or cause.key), command) or "; --cfg job lists all keys"
        )
    return message


def suggest(key: str, command: Command) -> str:
    """``; did you mean …?`` for an unknown key, or an empty string if nothing is similar."""
    groups = {path.name for path in config_dir(command).iterdir() if path.is_dir()}
    if any(name.startswith(f"data.{key}.") for name in setting_names(command)):
        return f"; its settings are written data.{key}.NAME"
    if key in groups:  # a file experiment/mine.yaml, read as experiment.*
        return f"; a file in a folder {key}/ must begin with the line '# @package _global_'"
    near = similar(key, sorted(groups.union(setting_names(command))))
    return f"; did you mean {' or '.join(near[:2])}?" if near else ""


def similar(key: str, known: Sequence[str]) -> list[str]:
    """The known keys that resemble a key, the most similar first."""
    group, _, leaf = key.rpartition(".")
    near = [name for name in known if f"_{leaf}_" in f"_{name.rpartition('.')[2]}_"]
    near.sort(key=lambda name: name.rpartition(".")[0] != group)
    return near or get_close_matches(key, known, n=2, cutoff=0.7)
