"""The boundary at which errors become single lines and exit statuses.

0 done, 1 bad input or environment, 2 bad usage, 130 and 143 interrupted. Loading the libraries
takes seconds, so this module imports none.
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

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
    """Turns errors of the user, the machine and its memory into one line and an exit status.

    Any other exception is a bug, whose traceback is printed as Python does.

    Args:
        program: Name of the command, with which the line begins.
    """
    try:
        yield
        print(end="", flush=True)  # a full disk or a closed pipe is reported here
    except InputError as error:
        print_error(program, str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one may come while we leave
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        try:
            print(end="", flush=True)
        except OSError:  # Python will try again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # as in `mt-translate … | head`
            sys.exit(128 + signal.SIGPIPE)
        print_error(program, format_os_error(error))
        sys.exit(1)
    except Exception as error:
        if is_out_of_memory(error):
            advice = "use a smaller model, or smaller batches"
            print_error(program, f"out of memory ({first_line(error)}): {advice}")
        else:
            traceback.print_exc()
        sys.exit(1)


def print_error(program: str, message: str) -> None:
    """Prints an error to standard error, in one line."""
    print(f"{program}: error: {printable(' '.join(message.split()))}", file=sys.stderr)
