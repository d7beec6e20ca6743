"""Console entry points of the three commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so this module imports the standard library only. An exception raised in the
middle of an import may be lost or replaced by another; therefore the process exits directly.
"""

import os
import signal
from contextlib import suppress
from importlib import import_module


def train() -> None:
    """Entry point of ``mt-train``."""
    _run("mt-train", "train")


def translate() -> None:
    """Entry point of ``mt-translate``."""
    _run("mt-translate", "translate")


def evaluate() -> None:
    """Entry point of ``mt-eval``."""
    _run("mt-eval", "evaluate")


def _run(program: str, module: str) -> None:
    def interrupted(*_: object) -> None:
        with suppress(OSError):  # standard error may be closed
            os.write(2, message)
        os._exit(130)

    message = f"{program}: interrupted\n".encode()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # it may be ignored, as under nohup
        signal.signal(signal.SIGINT, interrupted)
    main = import_module(f"transformer_mt.cli.{module}").main
    signal.signal(signal.SIGINT, before)
    main()
