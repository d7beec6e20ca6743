"""What the benchmarks share: their command line, the heading of a report, and its tables."""

import argparse
import platform
import re
import shlex
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tabulate

from transformer_mt.errors import InputError

tabulate.MIN_PADDING = 0  # by default, headers are two characters wider than they need

WIDTH = 98
"""Maximum width of a line of prose in a report."""
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared/data"
"""Real English–German text, next to the checkout."""


def argument_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of a script."""
    summary, _, details = (doc or "").partition("\n\n")
    return argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run_main(main: Callable[[], int | None]) -> None:
    """Runs a script's ``main``; bad input gives one line and status 1."""
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: error: {error}")


def heading(details: str) -> str:
    """The command, the date, and what it ran on: ``details`` and the processor's name."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        cpu = names[0] if names else cpu
    command = wrap(f"$ {shlex.join(['python', *sys.argv])}")
    return f"{command}\n{time.strftime('%Y-%m-%d')}, {details}, {cpu}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is left-aligned, the others are right-aligned."""
    align = ["left", *["right"] * (len(head) - 1)]
    return tabulate.tabulate(rows, head, tablefmt="pipe", colalign=align, disable_numparse=True)


def spread(ratios: Sequence[float]) -> str:
    """Median and extremes of the ratios of several rounds."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def wrap(text: str) -> str:
    """The text in lines of at most ``WIDTH`` characters."""
    return textwrap.fill(text, WIDTH)
