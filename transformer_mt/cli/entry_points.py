"""Console scripts of the commands, which handle Ctrl-C while the libraries load.

Loading takes seconds, so that this module imports the standard library only.
"""

import os
import resource
import signal
import sys
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


def check_address_space(program: str, gigabytes: int) -> None:
    """Exits with a line if ``ulimit -v`` leaves too little: libraries would abort, or worse.

    Args:
        program: Name of the command.
        gigabytes: Address space that its libraries, their threads and the smallest model reserve.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource.RLIM_INFINITY != limit < gigabytes << 30:
        print(
            f"{program}: error: the address space is limited to {limit >> 20} MB: raise ulimit -v "
            f"to {gigabytes} GB or more",
            file=sys.stderr,
        )
        sys.exit(1)


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
