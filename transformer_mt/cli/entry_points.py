"""The way into the three commands: Ctrl-C is answered while their libraries load.

That takes seconds, so nothing but the standard library is imported here. An exception out of the
middle of an import may be lost, or come out as another one; so the process ends at once.
"""

import os
import signal
from contextlib import suppress
from importlib import import_module


def train() -> None:
    """Entry point of ``mt-train``."""
    _start("mt-train", "train")


def translate() -> None:
    """Entry point of ``mt-translate``."""
    _start("mt-translate", "translate")


def evaluate() -> None:
    """Entry point of ``mt-eval``."""
    _start("mt-eval", "evaluate")


def _start(program: str, module: str) -> None:
    def leave(*_: object) -> None:
        with suppress(OSError):  # it may be closed
            os.write(2, message)
        os._exit(130)

    message = f"{program}: interrupted\n".encode()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as under nohup
        signal.signal(signal.SIGINT, leave)
    command = import_module(f"transformer_mt.cli.{module}").main
    signal.signal(signal.SIGINT, before)
    command()
