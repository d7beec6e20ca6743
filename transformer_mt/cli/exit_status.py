"""Exit statuses of the commands, and the one line on standard error that goes with each failure.

0 done, 1 bad input or environment, 2 bad usage, 130 and 143 interrupted. Only a bug shows a
traceback.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from transformer_mt.errors import InputError, UsageError, environment_error, printable


@contextmanager
def exit_status(program: str) -> Iterator[None]:
    """Turns an exception into one line on standard error and an exit status.

    Raises:
        SystemExit: With that status.
    """
    try:
        yield
    except InputError as error:
        _fail(program, str(error), 2 if isinstance(error, UsageError) else 1)
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
            _fail(program, message, 1)
        traceback.print_exc()
        sys.exit(1)


def print_error(program: str, message: str) -> None:
    """Prints an error to standard error, in one line."""
    print(f"{program}: error: {printable(' '.join(message.split()))}", file=sys.stderr)


def _fail(program: str, message: str, status: int) -> NoReturn:
    print_error(program, message)
    sys.exit(status)


def _reader_has_left() -> bool:
    """Whether standard output is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
