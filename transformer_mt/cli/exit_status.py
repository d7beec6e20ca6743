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

from transformer_mt.errors import (
    InputError,
    UsageError,
    first_line,
    format_os_error,
    is_out_of_memory,
    printable,
)


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
    except OSError as error:
        closed = isinstance(error, BrokenPipeError) and _reader_has_left()
        try:
            print(end="", flush=True)
        except OSError:  # Python will try again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if closed:  # as in `mt-translate … | head`
            sys.exit(128 + signal.SIGPIPE)
        _fail(program, format_os_error(error), 1)
    except Exception as error:
        if is_out_of_memory(error):
            reason = first_line(error)
            _fail(program, f"out of memory ({reason}): reduce the model or the batch", 1)
        if "failed to map segment from shared object" in str(error):
            remedy = "raise ulimit -v, or allow execution in its folder"
            _fail(program, f"cannot load a library ({first_line(error)}): {remedy}", 1)
        if "can't start new thread" in str(error):
            _fail(program, "cannot start a thread: raise ulimit -v (memory) or -u (processes)", 1)
        if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
            wrong = ascii(error.object[max(0, error.start - 40) : error.end + 40])
            remedy = "rename the file or folder, or correct the argument"
            _fail(program, f"not valid UTF-8: {wrong}; {remedy}", 1)
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
