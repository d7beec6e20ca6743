"""``mt-translate``: a file or a stream in, one translation a line out."""

import codecs
import contextlib
import json
import queue
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

from transformer_mt import checkpoint as ckpt
from transformer_mt import distributed
from transformer_mt.cli import app
from transformer_mt.config import DecodeConfig, TranslateJob
from transformer_mt.data.normalization import Normalizer
from transformer_mt.data.text import open_binary
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError

_MOST_LINES = 4096
"""Lines held at a time: enough to fill batches with sentences of one length."""


def main() -> None:
    """Entry point of ``mt-translate``."""
    app.main("translate", TranslateJob, run)


def run(job: TranslateJob) -> None:
    """Translates a file or a stream with the model of a folder."""
    model, tokenizer, trained = ckpt.load_model(Path(job.model).expanduser())
    decode = _settings(trained.decode, job)
    if job.nbest > decode.beam_size:
        raise InputError(f"nbest={job.nbest} needs a beam_size of at least as many")
    model.to(distributed.pick_device(job.device))
    translator = Translator(model, tokenizer, decode, Normalizer.of(trained.data))
    undecodable = 0
    with _input(job.input) as source, _output(job.output) as sink:
        for raw in _arriving(source, job.input or "standard input"):
            lines = [line.decode("utf-8", errors="replace") for line in raw]
            undecodable += sum(
                line.encode("utf-8", "surrogatepass") != bytes_
                for line, bytes_ in zip(lines, raw, strict=True)
            )
            best = translator.translate_nbest(lines, job.nbest)
            for line, translations in zip(lines, best, strict=True):
                if job.format == "text":
                    text = translations[0].text
                else:
                    found = [asdict(t) for t in translations]
                    text = json.dumps({"source": line, "translations": found}, ensure_ascii=False)
                sink.write(text.encode() + b"\n")
            sink.flush()
    if undecodable:
        _report(f"{undecodable:,} line(s) were not valid UTF-8; bad bytes were read as U+FFFD")
    if translator.cut_lines:
        _report(
            f"{translator.cut_lines:,} line(s) were longer than "
            f"max_source_tokens={decode.max_source_tokens} and were translated in parts"
        )


def _settings(trained: DecodeConfig, job: TranslateJob) -> DecodeConfig:
    """The folder's own decoding settings, with those of the command line over them."""
    keys = ("beam_size", "length_penalty", "max_extra_tokens", "max_source_tokens", "batch_tokens")
    given = {key: value for key in keys if (value := getattr(job, key)) is not None}
    return replace(trained, **given)


def _arriving(source: BinaryIO, name: str) -> Iterator[list[bytes]]:
    r"""Lines in the order they arrive: all that are there, but never waiting for more.

    So a slow pipe is answered line by line, and a file or a fast pipe in full batches. Lines end
    at ``\n`` only; a byte order mark before the first is no text.
    """
    lines: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=_MOST_LINES)

    def read() -> None:
        number = 0
        try:
            for number, line in enumerate(source, 1):
                mark = b"" if number > 1 else codecs.BOM_UTF8
                lines.put(line.removeprefix(mark).removesuffix(b"\n"))
            lines.put(None)
        except (OSError, EOFError, zlib.error) as error:
            lines.put(InputError(f"{name}: damaged or incomplete after line {number}: {error}"))
        except BaseException as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        arrived = [lines.get()]
        time.sleep(0.01)  # so that the first lines of a fast stream are not a batch of one
        while len(arrived) < _MOST_LINES and not lines.empty():
            arrived.append(lines.get())
        whole = [line for line in arrived if isinstance(line, bytes)]
        if whole:
            yield whole
        if isinstance(arrived[-1], BaseException):
            raise arrived[-1]
        if arrived[-1] is None:
            return


@contextlib.contextmanager
def _input(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        # Neither sys.stdin nor closed: the reading thread holds the lock of a stream it waits on,
        # and the program could not end before the next line.
        yield open(0, "rb", closefd=False)  # noqa: SIM115
        return
    with open_binary(Path(path).expanduser()) as file:
        yield file


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    """A file takes its name once it is whole."""
    if path is None:
        yield sys.stdout.buffer
        return
    target = Path(path).expanduser().resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:  # a pipe, or /dev/null: nothing to put a file over
            yield stream
        return
    with ckpt.atomic(target) as temporary, temporary.open("wb") as file:
        yield file


def _report(line: str) -> None:
    print(f"mt-translate: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
