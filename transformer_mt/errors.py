"""User-facing errors, and the context in which files are read so that errors name file and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class InputError(Exception):
    """Bad input or environment; the message is one line: what is wrong, where, and what to do.

    The commands print it to standard error without a traceback and exit with status 1.
    """


class UsageError(InputError):
    """Arguments that cannot be parsed, name no setting or lack a required one: exit status 2."""


@dataclass
class Place:
    """A place in a file, as messages name it: ``a.tsv`` or ``a.tsv, line 17``."""

    path: str | Path
    line: int | None = None
    """Number of the line that is being read, from 1; None outside lines."""

    def __str__(self) -> str:
        return str(self.path) if self.line is None else f"{self.path}, line {self.line}"


@contextmanager
def reading(
    path: str | Path, *damage: type[Exception], remedy: str = "", line: int | None = None
) -> Iterator[Place]:
    """Context in which a file is read and parsed: an error names the file, and the line if any.

    A reader of lines moves the place on::

        with reading(path) as place:
            for place.line, text in enumerate(file, 1):
                record = json.loads(text)

    Args:
        path: The file, as the user knows it.
        damage: What damaged content raises besides ``ValueError`` and ``EOFError``, such as
            ``SafetensorError``.
        remedy: What to do about damaged content, such as ``copy it again``.
        line: The line, of a reader that knows it.

    Raises:
        InputError: The file cannot be opened or read, is not UTF-8, or is damaged.
    """
    place = Place(path, line)
    expected: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, *damage)
    try:
        yield place
    except expected as error:
        if isinstance(error, OSError) and error.strerror:
            message, remedy = f"cannot read {place}: {error.strerror}", ""
        elif isinstance(error, UnicodeDecodeError):
            byte = f"byte 0x{error.object[error.start]:02X} at position {error.start + 1}"
            message = f"{place} is not valid UTF-8 ({byte}): convert it, e.g. "
            message += "iconv -f latin1 -t utf-8"
        else:
            message = f"{place} is damaged: {first_line(error)}"
        raise InputError(f"{message}; {remedy}" if remedy else message) from error


@contextmanager
def requiring(package: str, what: str) -> Iterator[None]:
    """Context in which an optional package is imported.

    Args:
        package: Its name, as pip knows it.
        what: What needs it, such as a setting.

    Raises:
        InputError: It is not installed, or cannot be imported.
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
