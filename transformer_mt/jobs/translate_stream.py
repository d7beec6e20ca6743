"""Lines as bytes in, translations as bytes out, one for one, whatever the bytes are."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import BinaryIO

from transformer_mt.data.text.lines import raw_lines
from transformer_mt.decode.translation import Translation
from transformer_mt.jobs.line_processor import Work


@dataclass(frozen=True)
class InputStats:
    """Lines that the user should know of: how many, and the number of the first (0: none)."""

    undecodable: int = 0
    first_undecodable: int = 0
    nul: int = 0
    first_nul: int = 0
    cut: int = 0

    def __add__(self, other: "InputStats") -> "InputStats":
        """Those of two stretches of one text."""
        both = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return InputStats(
            **{
                name: min(filter(None, pair), default=0) if name.startswith("first") else sum(pair)
                for name, pair in both.items()
            }
        )

    def report(self, max_source_tokens: int) -> Iterator[str]:
        """One line for each kind there is."""
        if self.undecodable:
            yield (
                f"{self.undecodable:,} line(s) were not valid UTF-8 (the first: line "
                f"{self.first_undecodable:,}); bad bytes were read as U+FFFD"
            )
        if self.nul:
            yield f"{self.nul:,} line(s) hold NUL characters (the first: line {self.first_nul:,})"
        if self.cut:
            yield (
                f"{self.cut:,} line(s) were longer than max_source_tokens={max_source_tokens} and "
                "were translated in parts"
            )


Form = Callable[[str, Sequence[Translation]], str]
"""The line of output for a line of input and what was found for it, best first."""


def as_text(_: str, found: Sequence[Translation]) -> str:
    """The best translation."""
    return found[0].text


def as_score(_: str, found: Sequence[Translation]) -> str:
    """The score of the best."""
    return f"{found[0].score:.6f}"


def as_json(source: str, found: Sequence[Translation]) -> str:
    """All there is to say."""
    row = {"source": source, "translations": [asdict(each) for each in found]}
    return json.dumps(row, ensure_ascii=False)


def answer(work: Work, raw: Sequence[bytes], first: int, *, form: Form) -> tuple[bytes, InputStats]:
    """The lines of output for lines of input.

    Args:
        work: What is done with them.
        raw: Lines without their ends.
        first: The number of the first of them.
        form: How the outcome is written.
    """
    lines, undecodable, nul = [], [], []
    for number, line in enumerate(raw, first):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            lines.append(line.decode(errors="replace"))
            undecodable.append(number)
        if b"\0" in line:
            nul.append(number)
    cut_before = work.cut_lines
    found = work.do(lines, first)
    rows = [f"{form(line, best)}\n" for line, best in zip(lines, found, strict=True)]
    return "".join(rows).encode(), InputStats(
        undecodable=len(undecodable),
        first_undecodable=min(undecodable, default=0),
        nul=len(nul),
        first_nul=min(nul, default=0),
        cut=work.cut_lines - cut_before,
    )


def arriving(source: BinaryIO, name: str, most: int) -> Iterator[list[bytes]]:
    """Lines in the order they arrive: all that are there, but never waiting for more.

    So a slow pipe is answered line by line, and a file or a fast pipe in full batches.

    Args:
        source: The stream.
        name: What errors call it.
        most: Lines at a time.
    """
    lines: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=most)

    def read() -> None:
        try:
            for line in raw_lines(source, name):
                lines.put(line)
            lines.put(None)
        except BaseException as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        arrived = [lines.get()]
        time.sleep(0.01)  # so that the first lines of a fast stream are not a batch of one
        while len(arrived) < most and not lines.empty():
            arrived.append(lines.get())
        whole = [line for line in arrived if isinstance(line, bytes)]
        if whole:
            yield whole
        if isinstance(arrived[-1], BaseException):
            raise arrived[-1]
        if arrived[-1] is None:
            return
