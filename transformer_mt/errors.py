"""User-facing errors, and the boundary at which they become single lines and exit statuses.

0 done, 1 bad input or environment, 2 bad usage, 130 and 143 interrupted.
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager


class InputError(Exception):
    """Bad input or environment; the message is one line: what is wrong, where, and what to do.

    The commands print it to standard error without a traceback and exit with status 1.
    """


class UsageError(InputError):
    """Arguments that cannot be parsed, name no setting or lack a required one: exit status 2."""


@contextmanager
def requiring(package: str, what: str) -> Iterator[None]:
    """Context in which an optional package is imported.

    Args:
        package: Its name, as pip knows it.
        what: What needs it, such as a setting.
    """
    try:
        yield
    except ImportError as error:
        raise InputError(f"{what} needs {package}: pip install {package} ({error})") from error


def printable(text: str) -> str:
    """The text with unprintable characters escaped, which could control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error means that the memory of a device is exhausted."""
    # torch.OutOfMemoryError by its name, because this module does not import PyTorch. On a CPU the
    # error is a plain RuntimeError that only its message tells apart.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def format_os_error(error: OSError) -> str:
    """An operating system error as one line: the reason and the files."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([error.strerror or str(error) or repr(error), *names])


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
