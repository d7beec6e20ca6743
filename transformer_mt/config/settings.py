"""Every setting of a command with its default and meaning, read from the dataclasses.

The text under a field of a config dataclass is the only place that says what the setting means.
``--help`` and ``configs/README.md`` are generated from it.
"""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

import omegaconf
from omegaconf import DictConfig, ListConfig, OmegaConf

from transformer_mt.config import config_dir, dotted
from transformer_mt.config.data import SourceConfig
from transformer_mt.config.decode import DecodeConfig, TranslateJob
from transformer_mt.config.evaluate import EvaluateJob
from transformer_mt.config.export import ExportJob
from transformer_mt.config.train import TrainJob

Command = Literal["train", "translate", "evaluate", "export"]

JOBS: dict[Command, type[TrainJob] | type[TranslateJob] | type[EvaluateJob] | type[ExportJob]] = {
    "train": TrainJob,
    "translate": TranslateJob,
    "evaluate": EvaluateJob,
    "export": ExportJob,
}
"""Dataclass of each command's configuration."""

PROGRAMS: dict[Command, str] = {
    "train": "mt-train",
    "translate": "mt-translate",
    "evaluate": "mt-eval",
    "export": "mt-export",
}
"""Name of each command on the command line."""


def primary_config_dir(command: Command) -> Path:
    """The folder of the command's primary config.

    Only ``train`` has groups: next to them ``model=FOLDER`` would choose a file of ``model/``.
    """
    return config_dir() if command == "train" else config_dir() / "commands"


@dataclass(frozen=True)
class Setting:
    """One ``key=value`` of a command."""

    key: str
    default: Any
    """Value if nothing is set: of the dataclass, or of the option that a group has by default."""
    meaning: str
    """Docstring of the field, in one paragraph."""

    @property
    def default_text(self) -> str:
        """The default as the command line takes it; lists of data sources are abbreviated."""
        if self.default in (omegaconf.MISSING, ""):
            return "???"
        if isinstance(self.default, list):
            plain = all(isinstance(item, str) for item in self.default)
            return f"[{','.join(self.default)}]" if plain else "[...]"
        if not isinstance(self.default, str):
            return json.dumps(self.default)
        return self.default.replace("${hydra:runtime.choices.data}", "<data>")


@dataclass(frozen=True)
class Section:
    """Settings that belong together: one dataclass."""

    prefix: str
    """Common prefix of the keys, such as ``model``; empty for the job's own settings."""
    meaning: str
    settings: list[Setting]


def sections(command: Command) -> list[Section]:
    """All settings of a command, in the order of its dataclasses."""
    return list(_sections(JOBS[command], _defaults(command)))


def source_settings() -> list[Setting]:
    """Settings of a data source, an item of ``data.train``, ``data.valid`` or ``data.test``."""
    (section,) = _sections(SourceConfig, {})
    return section.settings


def groups(command: Command) -> dict[str, dict[str, str]]:
    """The options of each config group, the default first, and their descriptions.

    A group is a folder of YAML files, of which ``GROUP=OPTION`` chooses one. The groups are in the
    order in which they are applied; a description is the comment that a file begins with.
    """
    found = {}
    for name, default in _default_options(command).items():
        folder = config_dir() / name
        options = {
            path.relative_to(folder).with_suffix("").as_posix(): _description(path)
            for path in sorted(folder.rglob("*.yaml"))
        }
        first = {"null": f"No {name}."} if default is None else {default: options[default]}
        found[name] = {**first, **options}
    return found


def first_sentence(text: str) -> str:
    """Everything up to the first full stop that ends a sentence, which "e.g." and "al." do not."""
    return re.split(r"(?<=\.)(?<!e\.g\.)(?<! al\.) (?=[A-Z0-9`])", text, maxsplit=1)[0]


def _sections(
    kind: type, defaults: dict[str, Any], prefix: str = "", meaning: str = ""
) -> Iterator[Section]:
    hints, meanings = get_type_hints(kind), field_docstrings(kind)
    # A job's decoding settings, which override those of the model folder, are described there.
    search = set() if prefix else {item.name for item in fields(DecodeConfig)}
    own, nested, inherited = [], [], []
    for item in fields(kind):
        key = f"{prefix}.{item.name}" if prefix else item.name
        if is_dataclass(hints[item.name]):
            text = meanings.get(item.name) or _paragraph(hints[item.name].__doc__ or "")
            nested.append((hints[item.name], key, text))
            continue
        default = defaults.get(key, item.default)
        if default is dataclasses.MISSING:
            default = cast(Callable[[], Any], item.default_factory)()
        if item.name not in meanings and item.name in search:
            text = field_docstrings(DecodeConfig).get(item.name, "")
            inherited.append(Setting(key, default, text))
        else:
            own.append(Setting(key, default, meanings.get(item.name, "")))
    yield Section(prefix, meaning or _paragraph(kind.__doc__ or ""), own)
    if inherited:
        yield Section("", "Decoding (null: as in the model folder's config.yaml)", inherited)
    for inner, key, text in nested:
        yield from _sections(inner, defaults, key, text)


@cache
def field_docstrings(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass; Python itself drops them."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[statement.target.id] = _paragraph(text)
    return found


def _defaults(command: Command) -> dict[str, Any]:
    """Values that the primary config and the default options set, by dotted key."""
    found: dict[str, Any] = {}
    for group, option in _default_options(command).items():
        if option is not None:
            path = config_dir() / group / f"{option}.yaml"
            header = re.match(r"# @package (\S+)", path.read_text(encoding="utf-8"))
            found |= _dotted(OmegaConf.load(path), f"{header[1] if header else group}.")
    return found | _dotted(_primary_config(command))


def _default_options(command: Command) -> dict[str, str | None]:
    entries = [entry for entry in _primary_config(command).defaults if not isinstance(entry, str)]
    pairs = [(str(group), option) for entry in entries for group, option in entry.items()]
    return {group: option for group, option in pairs if not group.startswith("override ")}


def _primary_config(command: Command) -> DictConfig:
    config = OmegaConf.load(primary_config_dir(command) / f"{command}.yaml")
    assert isinstance(config, DictConfig)
    return config


def _dotted(config: DictConfig | ListConfig, prefix: str = "") -> dict[str, Any]:
    values = OmegaConf.to_container(config)
    assert isinstance(values, dict)
    return dotted(cast(dict[str, Any], values), prefix)


def _description(path: Path) -> str:
    """First sentence of the comment that a config file begins with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            comment.append(line.lstrip("# "))
    return first_sentence(" ".join(comment))


def _paragraph(text: str) -> str:
    return " ".join(text.split())
