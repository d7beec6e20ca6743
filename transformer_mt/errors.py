"""Errors that users can correct, and one-line messages for others."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(Exception):
    """Bad input or environment; the message is one line: what is wrong, where, and what to do.

    The commands print it to standard error without a traceback and exit with status 1.
    """


class CacheError(InputError):
    """A cache that cannot be written."""


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
