"""Standard error and exit status of a command: log, progress, and the error that ends it.

Progress is a bar on a terminal, else log lines. The exit status is 0: done, 1: bad input or
environment, 2: bad usage, 130 and 143: interrupted.
"""

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from transformer_mt.errors import (
    InputError,
    UsageError,
    first_line,
    format_os_error,
    is_out_of_memory,
    printable,
)

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger(__name__)

_LOG_INTERVAL = 30.0
"""Seconds between two log lines."""


@contextmanager
def log_to(file: Path | None = None, *, prefix: str = "") -> Iterator[None]:
    """Sends the package's log to standard error, and to a file in which every line has its time.

    Args:
        file: The file, whose folder is created; None for standard error alone.
        prefix: Start of every line on standard error.
    """
    screen = _Screen(sys.stderr)
    screen.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    handlers: list[logging.Handler] = [screen]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_LogFile(file, encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    package = logging.getLogger("transformer_mt")
    before = package.handlers, package.level, package.propagate
    package.handlers, package.propagate = handlers, False
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.handlers, previous, package.propagate = before
        package.setLevel(previous)
        with suppress(OSError):  # already reported
            handlers[-1].close()


class _Screen(logging.StreamHandler[TextIO]):
    """Standard error, on which lines appear above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        from tqdm import tqdm

        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


class _LogFile(logging.FileHandler):
    """A log file that a full disk stops, with one warning."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not self._failed:
            print(
                f"warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}", file=sys.stderr
            )
        self._failed = True


def progress_bar(unit: str, action: str, *, done: int = 0, total: int | None = None) -> "tqdm":
    """The progress of long work: a bar on a terminal, else a log line now and then.

    A context, whose ``update(n)`` reports that n more items are done.

    Args:
        unit: What is counted, for instance ``lines``.
        action: Past participle of what is done with them.
        done: Number of items done by an earlier attempt.
        total: Number of all items; None if it is not known.
    """
    from tqdm import tqdm  # which --help does not need

    on_terminal = sys.stderr.isatty()
    of, left = ("", "") if total is None else (" of {total:,}", ", {remaining} left")
    text = f"{action}: {{n:,}}{of} {unit}, {{rate_noinv:,.0f}} {unit}/s{left}"
    return tqdm(
        total=total,
        initial=done,
        bar_format=text + " {bar}" * (on_terminal and total is not None),
        file=sys.stderr if on_terminal else _LogLines(),
        dynamic_ncols=on_terminal,
        ascii=not on_terminal,
        leave=on_terminal,
        smoothing=0,
        miniters=0,
        mininterval=0.1 if on_terminal else _LOG_INTERVAL,
        delay=1e-9 if on_terminal else _LOG_INTERVAL,  # at 0 there is no rate
    )


class _LogLines(io.StringIO):
    """What tqdm writes its text to where there is no terminal."""

    def write(self, text: str) -> int:
        """Logs a text unless it is blank, as those are that clear a line."""
        if line := text.strip():
            log.info("%s", line)
        return len(text)


@contextmanager
def exit_status(program: str) -> Iterator[None]:
    """Turns errors of the user, the machine and its memory into one line and an exit status.

    Any other exception is a bug, and is left to Python.

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
        if not is_out_of_memory(error):
            raise
        advice = "use a smaller model, or smaller batches"
        print_error(program, f"out of memory ({first_line(error)}): {advice}")
        sys.exit(1)


def print_error(program: str, message: str) -> None:
    """Prints an error to standard error, in one line."""
    print(f"{program}: error: {printable(' '.join(message.split()))}", file=sys.stderr)
