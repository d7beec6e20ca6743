"""Console scripts of the commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so that this module imports the standard library only.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal


def train() -> None:
    """The console script ``mt-train``."""
    run("train", "mt-train")


def translate() -> None:
    """The console script ``mt-translate``."""
    run("translate", "mt-translate")


def evaluate() -> None:
    """The console script ``mt-eval``."""
    run("evaluate", "mt-eval")


def export() -> None:
    """The console script ``mt-export``."""
    run("export", "mt-export")


def run(command: Literal["train", "translate", "evaluate", "export"], program: str) -> None:
    """Runs a command with the arguments in ``sys.argv``."""
    with exit_on_interrupt(program):
        from transformer_mt.cli.main import main
    main(command)


@contextmanager
def exit_on_interrupt(program: str) -> Iterator[None]:
    """Exits directly on Ctrl-C while modules are imported.

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
