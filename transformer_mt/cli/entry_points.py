"""Console scripts of the commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so this module imports the standard library only.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module


def train() -> None:
    """The console script ``mt-train``."""
    _run("mt-train", "train")


def translate() -> None:
    """The console script ``mt-translate``."""
    _run("mt-translate", "translate")


def evaluate() -> None:
    """The console script ``mt-eval``."""
    _run("mt-eval", "evaluate")


def export() -> None:
    """The console script ``mt-export``."""
    _run("mt-export", "export")


def _run(program: str, module: str) -> None:
    """Imports a module of this folder and runs its ``main``."""
    with exit_on_interrupt(program):
        command = import_module(f"transformer_mt.cli.{module}")
    command.main()


@contextmanager
def exit_on_interrupt(program: str) -> Iterator[None]:
    """Exit directly on Ctrl-C while modules are imported.

    An exception raised in the middle of an import may be lost or replaced by another.
    """

    def interrupted(*_: object) -> None:
        with suppress(OSError):  # standard error may be closed
            os.write(2, f"{program}: interrupted\n".encode())
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # it may be ignored, as under nohup
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
