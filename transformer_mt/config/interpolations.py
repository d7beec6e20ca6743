"""Interpolations of OmegaConf, ``${key}``, and text that has the same characters."""

import re
from typing import Any

_START = re.compile(r"(?<!\\)(\\*+)\$\{")
"""The start of an interpolation; after an odd number of backslashes it is text."""


def literal(value: Any) -> Any:
    """A value, list or dictionary whose strings OmegaConf reads as they are in the one given."""
    if isinstance(value, str):
        return _START.sub(lambda match: 2 * match[1] + "\\${", value)
    if isinstance(value, list):
        return [literal(item) for item in value]
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    return value


def has_interpolation(text: str) -> bool:
    """Whether OmegaConf would replace a part of the text."""
    return any(len(match[1]) % 2 == 0 for match in _START.finditer(text))
