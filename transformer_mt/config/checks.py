"""Declaration and checks of settings: limits, and the names that they accept.

OmegaConf checks types. Each check raises ``InputError`` with a message for the user.
"""

import math
import operator
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from omegaconf import DictConfig, OmegaConf

from transformer_mt.errors import InputError
from transformer_mt.registries import Registry

T = TypeVar("T")

_LIMITS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": ("≥", operator.ge),
    "above": (">", operator.gt),
    "at_most": ("≤", operator.le),
    "below": ("<", operator.lt),
}


def number(default: T, **limits: float) -> T:
    """A field for a finite number within limits, or None if that is the default.

    Args:
        default: The default value.
        limits: Any of ``at_least``, ``above``, ``at_most`` and ``below``.
    """
    result: T = field(default=default, metadata={"limits": limits})
    return result


def one_of(*names: str | Registry, default: Any = ...) -> Any:
    """A field for one of some names, or for any of them if the default is a list.

    Args:
        names: Names, or registries, which stand for theirs, also for those registered later.
        default: The first name unless given; None is accepted if it is None.
    """
    accepted: ChainMap[str, Any] = ChainMap()
    for item in names:
        accepted = accepted.new_child({item: None} if isinstance(item, str) else item)
    metadata = {"names": accepted}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=next(iter(accepted)) if default is ... else default, metadata=metadata)


@dataclass(frozen=True)
class Checked:
    """Base of dataclasses of settings: checks fields of ``number`` and ``one_of``."""

    _prefix: ClassVar[str] = ""
    """What precedes the fields on the command line, such as ``train.``."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            key, value = self._prefix + setting.name, getattr(self, setting.name)
            if value is None and setting.default is None:
                continue
            if (limits := setting.metadata.get("limits")) is not None:
                ok, expected = abs(value) < math.inf, []
                for name, limit in limits.items():
                    sign, holds = _LIMITS[name]
                    ok &= holds(value, limit)
                    expected.append(f"{sign} {limit:,}")
                or_null = " (or null)" * (setting.default is None)
                must = " and ".join(expected) or "finite"
                require(ok, f"{key}={value} must be {must}{or_null}")
            if names := setting.metadata.get("names"):
                values = value if isinstance(value, list) else [value]
                for name in values:
                    require(name in names, f"{key}={name!r} is not one of: {', '.join(names)}")
                require(len(set(values)) == len(values), f"{key} lists a name twice: {values}")

    def require_defaults(self, *names: str, reason: str) -> None:
        """Raises ``InputError`` if a setting has another value than its default."""
        for name in names:
            require(getattr(self, name) == getattr(type(self), name), f"{name} {reason}")


def schema(job: type) -> DictConfig:
    """Types and defaults of a config dataclass as an OmegaConf node that can be merged into."""
    root = OmegaConf.structured(job)
    nodes = [root]
    while nodes:  # OmegaConf write-protects the nodes of frozen dataclasses, against merging too
        node = nodes.pop()
        OmegaConf.set_readonly(node, False)
        for key in node:
            if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
                nodes.append(node[key])
    return root


def dotted(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested dictionaries: ``{"train": {"seed": 1}}`` → ``{"train.seed": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = prefix + key
        flat |= dotted(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def require(ok: bool, message: str, error: type[InputError] = InputError) -> None:
    """Raises an error with the message unless ``ok``; ``UsageError`` if a setting is missing."""
    if not ok:
        raise error(message)


def is_language_code(text: str) -> bool:
    """Whether a text is a code of BCP 47, such as de, pt-BR or zh_Hans, of a registered language.

    Codes of countries, such as cz and jp, are not.
    """
    import langcodes  # 60 ms

    return langcodes.tag_is_valid(text.replace("_", "-"))


def require_language(key: str, value: str) -> None:
    """Raises ``InputError`` unless the value is a language code."""
    quoted = '; in YAML, write "no" in quotes' if value == "False" else ""
    require(
        is_language_code(value),
        f"{key}={value!r} is not a language code, such as de, pt-BR or zh_Hans{quoted}",
    )
