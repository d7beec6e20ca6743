"""Every setting of a command with its default and meaning, read from the config dataclasses.

The text under a field is the only place that says what a setting means. ``--help`` and
``transformer_mt/config/README.md`` are generated from it, with the names that the setting accepts.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_type_hints

from omegaconf import DictConfig, OmegaConf

from transformer_mt.config import CONFIG_DIR, CONFIG_DIRS, JOBS, Command
from transformer_mt.config.checks import dotted, schema
from transformer_mt.config.source import SourceConfig
from transformer_mt.config.translate import DecodeConfig, SearchConfig


@dataclass(frozen=True)
class Setting:
    """One ``key=value`` of a command."""

    key: str
    default: str | None
    """Its value if nothing is set, as on the command line; None for an option of a group and a key
    of a data source."""
    meaning: str
    """Docstring of the field, in one paragraph, with the names that it accepts."""


@dataclass(frozen=True)
class Section:
    """Settings that belong together: one dataclass."""

    title: str
    """Common prefix of the keys, such as ``model``; empty for the job's own settings."""
    meaning: str
    settings: list[Setting]


def sections(command: Command, config: DictConfig) -> list[Section]:
    """All settings of a command, in the order of its dataclasses, and the options of its groups.

    Args:
        command: The command.
        config: Its composed configuration, by ``compose_config``.
    """
    values = cast(dict[str, Any], OmegaConf.to_container(config))
    result = list(_sections(JOBS[command], dotted(values)))
    if command == "train":
        groups = "Chosen by GROUP=OPTION; the default is listed first (experiment: none)."
        options = list(_options(config.hydra.runtime.choices))
        result.insert(0, Section("Groups", groups, options))
        sources = "Keys of an item of data.train, data.valid or data.test."
        result += _sections(SourceConfig, {}, meaning=sources, title="Data sources")
    return result


def _options(choices: Mapping[str, str | None]) -> Iterator[Setting]:
    """The options of each config group; groups that most runs choose, and defaults, come first.

    A group is a folder of YAML files, of which ``GROUP=OPTION`` chooses one. An option is described
    by the first sentence of the comment that its file begins with.
    """
    for group in dict.fromkeys(["experiment", "data", "model", *reversed(list(choices))]):
        default = choices[group]
        if group.startswith("hydra/"):
            continue
        folder = CONFIG_DIR / group
        for name in sorted(group_options(group), key=lambda name: (name != default, "/" in name)):
            yield Setting(f"{group}={name}", None, _description(folder / f"{name}.yaml"))
        if group == "model":  # not a file: cli/compose.py replaces it by an experiment
            meaning = (
                "Chooses model, vocabulary, batch size and updates for the size of your corpus."
            )
            yield Setting("model=auto", None, meaning)


def group_options(group: str) -> list[str]:
    """The options of a config group, such as ``table3/big``; empty if there is no such group."""
    folder = CONFIG_DIR / group
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.yaml"))
    return sorted(path.as_posix() for path in paths)


def setting_names(command: Command) -> list[str]:
    """The dotted names of all settings of a command, and the names of its groups."""
    defaults = cast(dict[str, Any], OmegaConf.to_container(schema(JOBS[command])))
    groups = (path.name for path in CONFIG_DIRS[command].iterdir() if path.is_dir())
    return sorted({*groups, *dotted(defaults)})


def first_sentence(text: str) -> str:
    """Everything up to the first full stop that ends a sentence, which "e.g." and "al." do not."""
    return re.split(r"(?<=\.)(?<!e\.g\.)(?<! al\.) (?=[A-Z0-9`])", text, maxsplit=1)[0]


def _sections(
    kind: type, defaults: Mapping[str, Any], prefix: str = "", meaning: str = "", title: str = ""
) -> Iterator[Section]:
    """The section of a dataclass, and those of the dataclasses that are its fields."""
    hints, meanings = get_type_hints(kind), field_docstrings(kind)
    # A job's search settings are described there.
    search = {} if prefix else field_docstrings(SearchConfig) | field_docstrings(DecodeConfig)
    own: list[Setting] = []
    inherited: list[Setting] = []
    nested = []
    for item in fields(kind):
        key, hint = f"{prefix}.{item.name}" if prefix else item.name, hints[item.name]
        text = meanings.get(item.name, "")
        if is_dataclass(hint):
            nested.append((cast(type, hint), key, text or _paragraph(hint.__doc__ or "")))
            continue
        default = _on_command_line(defaults[key]) if key in defaults else None
        if default == "":  # required
            default = "NAME" if "names" in item.metadata else "FOLDER"
        setting = Setting(key, default, text or search.get(key, ""))
        (own if text or key not in search else inherited).append(setting)
    yield Section(title or prefix, meaning or _paragraph(kind.__doc__ or ""), own)
    if inherited:
        yield Section("Decoding", "If null, as in the model folder's config.yaml.", inherited)
    for inner, key, text in nested:
        yield from _sections(inner, defaults, key, text)


@cache
def field_docstrings(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, and the names that the field accepts.

    Python itself drops these docstrings.
    """
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    names = {item.name: list(item.metadata.get("names", ())) for item in fields(kind)}
    docstrings = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if name in names:  # not a ClassVar
                docstrings[name] = _with_names(_paragraph(text), names[name])
    return docstrings


def _with_names(text: str, names: list[str]) -> str:
    """The text with its names in brackets after the first sentence, before "null: …"."""
    if not names:
        return text
    first = first_sentence(text).partition(" null:")[0]
    quoted = [f"``{name}``" for name in names]
    listed = " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
    return f"{first.removesuffix('.')} ({listed}).{text[len(first) :]}"


def _on_command_line(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(value)}]" if all(isinstance(v, str) for v in value) else "[...]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value.replace("${hydra:runtime.choices.data}", "<data>")


def _description(path: Path) -> str:
    """First sentence of the comment that a config file begins with."""
    comment = re.match(r"(# .*\n)*", path.read_text(encoding="utf-8"))
    lines = comment[0].splitlines() if comment else []
    return first_sentence(" ".join(line[2:] for line in lines if not line.startswith("# @package")))


def _paragraph(text: str) -> str:
    return " ".join(text.split())
