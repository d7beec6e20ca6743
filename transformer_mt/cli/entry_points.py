"""Console scripts of the commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so this module imports the standard library only.
"""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal


def run(command: Literal["train", "translate", "evaluate", "export"], program: str) -> None:
    """Runs a command with the arguments in ``sys.argv``."""
    with exit_on_interrupt(program):
        from transformer_mt.cli.main import main
    main(command)


train = partial(run, "train", "mt-train")
translate = partial(run, "translate", "mt-translate")
evaluate = partial(run, "evaluate", "mt-eval")
export = partial(run, "export", "mt-export")


@contextmanager
def exit_on_interrupt(program: str, *, gigabytes: int = 0) -> Iterator[None]:
    """Context for imports, in which Ctrl-C exits directly.

    An exception raised in the middle of an import may be lost or replaced by another.

    Args:
        program: Name of the command.
        gigabytes: Memory that the modules need. If ``ulimit -v`` leaves less, libraries abort, or
            worse, so ``InputError`` is raised.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource.RLIM_INFINITY != limit < gigabytes << 30:
        need = f"raise ulimit -v to {gigabytes} GB or more"
        from transformer_mt.errors import InputError

        raise InputError(f"the address space is limited to {limit >> 20} MB: {need}")

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
