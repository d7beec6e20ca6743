"""The checks that every schema is made of."""

from transformer_mt.errors import InputError


def require(ok: bool, message: str) -> None:
    """Raises ``InputError`` unless all is well."""
    if not ok:
        raise InputError(message)


def choice(key: str, value: str, *allowed: str) -> None:
    """Raises ``InputError`` unless the value is one of those allowed."""
    require(value in allowed, f"{key}={value!r} is not one of: {', '.join(allowed)}")
