"""The commands: composition of their settings, ``--help``, errors and exit statuses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which loads more than the entry points need
    from transformer_mt.config import Command

PROGRAMS: "dict[Command, str]" = {
    "train": "mt-train",
    "translate": "mt-translate",
    "evaluate": "mt-eval",
    "export": "mt-export",
}
"""The program of each command of the table ``config.JOBS``."""

Run = Callable[[Any], None]
"""Runs a job and prints its results."""
