"""How settings are declared and checked: their limits, and the names that they accept.

Each check raises ``InputError`` with a message for the user.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar

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
        names: Names, or registries, which stand for theirs.
        default: The first name unless given; None is accepted if it is None.
    """
    metadata = {"names": names}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=_flat(names)[0] if default is ... else default, metadata=metadata)


def accepted_names(setting: Field[Any]) -> list[str]:
    """The names that a field of ``one_of`` accepts; empty for other fields."""
    return _flat(setting.metadata.get("names", ()))


def _flat(names: Iterable[str | Registry]) -> list[str]:
    return [name for item in names for name in ([item] if isinstance(item, str) else item)]


def check(config: Any, prefix: str = "") -> None:
    """Checks every field that is declared with ``number`` or ``one_of``.

    Args:
        config: A dataclass instance.
        prefix: What precedes the names of its fields on the command line, such as ``train.``.
    """
    for setting in fields(config):
        key, value = prefix + setting.name, getattr(config, setting.name)
        if value is None and setting.default is None:
            continue
        if "limits" in setting.metadata:
            _check_number(key, value, setting.metadata["limits"], or_null=setting.default is None)
        if isinstance(setting.default, bool):
            require(isinstance(value, bool), f"{key}={value!r} is neither true nor false")
        if names := accepted_names(setting):
            for name in value if isinstance(value, list) else [value]:
                choice(key, name, *names)


def _check_number(key: str, value: object, limits: Mapping[str, float], *, or_null: bool) -> None:
    require(isinstance(value, int | float), f"{key}={value!r} is not a number")
    assert isinstance(value, int | float)
    within = all(_LIMITS[name][1](value, limit) for name, limit in limits.items())
    expected = " and ".join(f"{_LIMITS[name][0]} {limit:,}" for name, limit in limits.items())
    message = f"{key}={value} must be {expected or 'finite'}{' (or null)' * or_null}"
    require(within and abs(value) < math.inf, message)


def require(ok: bool, message: str) -> None:
    """Raises ``InputError`` with the message unless ``ok``."""
    if not ok:
        raise InputError(message)


def require_language(key: str, value: str) -> None:
    """Raises ``InputError`` unless the value has the form of a language code (BCP 47)."""
    require(
        bool(re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", value)),
        f"{key}={value!r} is not a language code, such as de, pt-BR or zh_Hans",
    )


def choice(key: str, value: str, *allowed: str) -> None:
    """Raises ``InputError`` unless the value is one of those allowed."""
    require(value in allowed, f"{key}={value!r} is not one of: {', '.join(allowed)}")
