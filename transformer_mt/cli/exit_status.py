"""Exit statuses of the commands: Ctrl-C while the libraries load, and errors as single lines.

0 done, 1 bad input or environment, 2 bad usage, 130 and 143 interrupted; each failure is one line
on standard error, and only a bug shows a traceback. Loading the libraries takes seconds, so this
module imports none.
"""

import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transformer_mt.errors import InputError, UsageError, environment_error, printable


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


@contextmanager
def exit_status(program: str) -> Iterator[None]:
    """Turns an exception into one line on standard error and an exit status.

    Raises:
        SystemExit: With that status.
    """
    try:
        yield
    except InputError as error:
        print_error(program, str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one may come while we leave
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if isinstance(error, OSError):
            closed = isinstance(error, BrokenPipeError) and _reader_has_left()
            try:
                print(end="", flush=True)
            except OSError:  # Python will try again at exit, and complain
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if closed:  # as in `mt-translate … | head`
                sys.exit(128 + signal.SIGPIPE)
        if (message := environment_error(error)) is not None:
            print_error(program, message)
        else:
            traceback.print_exc()
        sys.exit(1)


def print_error(program: str, message: str) -> None:
    """Prints an error to standard error, in one line."""
    print(f"{program}: error: {printable(' '.join(message.split()))}", file=sys.stderr)


def _reader_has_left() -> bool:
    """Whether standard output is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
