"""Console entry points of the commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so this module imports the standard library only.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def train() -> None:
    """Entry point of ``mt-train``."""
    with exit_on_interrupt("mt-train"):
        from transformer_mt.cli.train import main
    main()


def translate() -> None:
    """Entry point of ``mt-translate``."""
    with exit_on_interrupt("mt-translate"):
        from transformer_mt.cli.translate import main
    main()


def evaluate() -> None:
    """Entry point of ``mt-eval``."""
    with exit_on_interrupt("mt-eval"):
        from transformer_mt.cli.evaluate import main
    main()


def export() -> None:
    """Entry point of ``mt-export``."""
    with exit_on_interrupt("mt-export"):
        from transformer_mt.cli.export import main
    main()


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
