"""Helpers of the benchmarks: text, command line, report, and memory of processes."""

import argparse
import os
import platform
import re
import shlex
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tabulate
import torch

from transformer_mt.cli.compose import override
from transformer_mt.config import CONFIG_DIR, SourceConfig
from transformer_mt.console import exit_status
from transformer_mt.errors import InputError
from transformer_mt.kernels.hardware import device_name

tabulate.MIN_PADDING = 0  # by default, headers are two characters wider than they need

T = TypeVar("T")
WIDTH = 98
"""Maximum width of a line of prose in a report."""
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared/data"
"""Real English–German text, next to the checkout."""


# The command line.


def argument_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of a script."""
    summary, _, details = (doc or "").partition("\n\n")
    return argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_model(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds ``--model``, a name in ``configs/model``."""
    models = sorted(path.stem for path in (CONFIG_DIR / "model").glob("*.yaml"))
    parser.add_argument(
        "--model",
        default=default,
        choices=models,
        help=f"configs/model/*.yaml (default: {default})",
    )


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Adds ``--corpus`` and ``--data``."""
    parser.add_argument("--corpus", default="multi30k", choices=CORPORA, help="default: multi30k")
    add_data(parser)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Adds ``--data``."""
    default = "folder of the corpora (default: ../shared/data)"
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help=default)


def check_positive(options: argparse.Namespace, *names: str) -> None:
    """Raises ``InputError`` if one of these options is not above 0."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise InputError(f"--{name.replace('_', '-')} must be above 0")


def split_names(text: str, known: Sequence[str]) -> list[str]:
    """Names that are separated by commas.

    Raises:
        InputError: One of them is not known.
    """
    names = text.split(",")
    for name in names:
        if name not in known:
            raise InputError(f"no {name!r}; there are: {', '.join(known)}")
    return names


def require(package: str, what: str) -> None:
    """Raises ``InputError`` if something needs a package that is not installed."""
    if find_spec(package) is None:
        raise InputError(
            f"{what} needs {package}: run pip install --group bench (or pip install {package}), "
            "or name what to measure"
        )


def run_main(main: Callable[[], int | None]) -> None:
    """Runs a script's ``main``; bad input gives one line and status 1."""
    with exit_status(Path(sys.argv[0]).name):
        sys.exit(main())


# The report.


def heading() -> str:
    """The command, the date, PyTorch, its threads, the processor and the GPU."""
    details = [
        time.strftime("%Y-%m-%d"),
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"{torch.get_num_threads()} thread(s)",
        processor(),
    ]
    if torch.cuda.is_available():
        details.append(torch.cuda.get_device_name())
    command = shlex.join(["python", *sys.argv])
    return f"{wrap(f'$ {command}')}\n{wrap(', '.join(details))}"


def processor() -> str:
    """The CPU's name, and what virtual machines leave out of it: generation, vector width."""
    details = [device_name(torch.device("cpu"))]
    if (info := Path("/proc/cpuinfo")).exists():
        pairs = (line.partition(":") for line in info.read_text().splitlines())
        values = {key.strip(): value.strip() for key, _, value in pairs}
        details += [f"{key} {values[key]}" for key in ("cpu family", "model") if key in values]
    return ", ".join([*details, torch.backends.cpu.get_cpu_capability()])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is left-aligned, the others are right-aligned."""
    align = ["left", *["right"] * (len(head) - 1)]
    return tabulate.tabulate(rows, head, tablefmt="pipe", colalign=align, disable_numparse=True)


def spread(ratios: Sequence[float]) -> str:
    """Median and extremes of the ratios of several rounds."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def rotated(names: list[T], number: int) -> list[T]:
    """The names, beginning with another one in each round."""
    turn = number % len(names)
    return names[turn:] + names[:turn]


def wrap(text: str) -> str:
    """The text in lines of at most ``WIDTH`` characters."""
    return textwrap.fill(text, WIDTH)


# Text.


def files_of(folder: Path, name: str) -> SourceConfig:
    """The pairs of two files, ``NAME.en.gz`` and ``NAME.de.gz``."""
    return SourceConfig(src=f"{folder / name}.en.gz", tgt=f"{folder / name}.de.gz")


def multi30k(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """Image captions."""
    return [files_of(data / "multi30k", "train")], [files_of(data / "multi30k", "val")]


def mix(data: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """Six kinds of text, validated on newstest2013."""
    kinds = ("news", "parliament", "books", "manuals", "bible", "sentences")
    train = [SourceConfig(tsv=str(data / f"mix/{kind}.tsv.gz")) for kind in kinds]
    return train, [files_of(data / "mix", "newstest2013")]


def sample(_: Path) -> tuple[list[SourceConfig], list[SourceConfig]]:
    """The built-in sample."""
    return [SourceConfig(sample="train")], [SourceConfig(sample="valid")]


CORPORA = {"multi30k": multi30k, "mix": mix, "sample": sample}
"""Training and validation sources by the name of a corpus, in a folder of corpora."""


def data_settings(train: list[SourceConfig], valid: list[SourceConfig]) -> list[str]:
    """The overrides of mt-train for its languages and pairs."""
    languages = ["data=files", "data.src_lang=en", "data.tgt_lang=de"]
    return [*languages, override("data.train", train), override("data.valid", valid)]


# Processes.


class Usage(NamedTuple):
    """Memory and CPU time of a process tree; zero once the process has ended."""

    memory: int = 0
    """Proportional set size in bytes: pages that several processes share are counted once."""
    cpu_seconds: float = 0.0
    """CPU time, user and system, of the processes and of children that have ended."""


def usage(pid: int) -> Usage:
    """What a process and its descendants use now, from Linux's /proc."""
    folder = Path(f"/proc/{pid}")
    try:
        memory = (folder / "smaps_rollup").read_text()
        # The name of the program, in brackets, may contain spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        tasks = [(task / "children").read_text() for task in (folder / "task").iterdir()]
    except OSError:  # it has ended
        return Usage()
    (kilobytes,) = re.findall(r"^Pss:\s+(\d+)", memory, re.M) or ["0"]
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    own = Usage(int(kilobytes) << 10, ticks / os.sysconf("SC_CLK_TCK"))
    children = [usage(int(child)) for child in " ".join(tasks).split()]
    return Usage(*map(sum, zip(own, *children, strict=True)))


def in_new_process(work: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """Runs a function in a new process; its result, and the peak memory of all its processes."""
    peak = 0
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        future = pool.submit(work, *arguments)
        while not future.done():
            usages = [usage(child.pid) for child in active_children() if child.pid]
            peak = max(peak, sum(used.memory for used in usages))
            time.sleep(0.5)
        return future.result(), peak
