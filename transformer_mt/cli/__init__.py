"""The commands: composition of their settings, ``--help``, errors and exit statuses."""

from collections.abc import Callable
from typing import Any

PROGRAMS = {
    "train": "mt-train",
    "translate": "mt-translate",
    "evaluate": "mt-eval",
    "export": "mt-export",
}
"""The program of each command of the table ``config.JOBS``."""

Run = Callable[[Any], float | None]
"""Runs a job and prints its results; may return an objective."""
