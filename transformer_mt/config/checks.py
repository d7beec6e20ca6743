"""Checks of configuration values; each raises ``InputError`` with a message for the user."""

import re

from transformer_mt.errors import InputError


def require(ok: bool, message: str) -> None:
    """Raise ``InputError`` with the message unless ``ok``."""
    if not ok:
        raise InputError(message)


def at_least(minimum: float, config: object, *keys: str, prefix: str = "") -> None:
    """Raise ``InputError`` unless settings are ≥ the minimum, or None if that is the default."""
    for key in keys:
        value, hint = getattr(config, key), " (or null)" * (getattr(type(config), key) is None)
        message = f"{prefix}{key}={value} must be ≥ {minimum}{hint}"
        require(value is None or value >= minimum, message)


def require_language(key: str, value: str) -> None:
    """Raise ``InputError`` unless the value has the form of a language code (BCP 47)."""
    require(
        bool(re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", value)),
        f"{key}={value!r} is not a language code, such as de, pt-BR or zh_Hans",
    )


def choice(key: str, value: str, *allowed: str) -> None:
    """Raise ``InputError`` unless the value is one of those allowed."""
    require(value in allowed, f"{key}={value!r} is not one of: {', '.join(allowed)}")
