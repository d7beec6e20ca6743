"""mt-translate with documents: formats, messages, one-line errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.documents import Capitals, tags
from support.errors import input_error

from transformer_mt.cli import main as commands
from transformer_mt.config import TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.jobs import line_processor
from transformer_mt.protocols import Translation

PAGE = (
    '<html lang="en">\n<p>the <b title="a fox">dog</b> jumps<br>a <code>fox</code>\n<pre>the</pre>'
)
IN_CAPITALS = (
    '<html lang="de">\n<p>THE <b title="A FOX">DOG</b> JUMPS<br>A <code>fox</code>\n<pre>the</pre>'
)
Run = Callable[..., bytes]


@pytest.fixture
def run(untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Translates a document from file to file, into words in capitals."""
    translator = Capitals()
    monkeypatch.setattr(line_processor.Translator, "open", lambda *_, **__: translator)

    def translated(content: bytes, name: str = "page.html", **settings: Any) -> bytes:
        source, target = tmp_path / name, tmp_path / "out"
        source.write_bytes(content)
        job = TranslateJob(
            model=str(untrained), input=str(source), output=str(target), device="cpu", **settings
        )
        commands.translate(job)
        return target.read_bytes()

    return translated


def test_a_model_keeps_the_markup_of_standard_input(
    untrained: Path, capfd: pytest.CaptureFixture[str], standard_input: Callable[[bytes], None]
) -> None:
    standard_input(PAGE.encode())
    commands.translate(TranslateJob(model=str(untrained), format="html", device="cpu"))
    output = capfd.readouterr().out
    assert tags(output) == tags(PAGE)
    assert output.startswith('<html lang="de">\n<p>')
    assert "<code>fox</code>" in output
    assert output.endswith("\n<pre>the</pre>")
    assert output != PAGE


def test_messages(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in ({}, {"markup": "keep"}):  # which a document does anyway
        assert run(PAGE.encode(), **settings).decode() == IN_CAPITALS
        (message,) = capsys.readouterr().err.splitlines()
        assert message.startswith("mt-translate: ")
        assert message.endswith("/page.html: translated 3 text(s)")
    monkeypatch.setattr(Capitals, "_translate", lambda *_: Translation("", 0, 0))
    assert run(PAGE.encode()) == PAGE.replace('"en"', '"de"').encode()
    assert capsys.readouterr().err.splitlines()[1:] == [
        "mt-translate: 2 element(s) could not be placed by word alignment: <b> in line 2, <code> "
        "in line 2",
        "mt-translate: 3 text(s) have no usable translation and were left as they are: line 2, "
        "line 2, line 2",
    ]


def test_documents_are_utf8(run: Run) -> None:
    for start in ("", "\ufeff", "<meta charset=UTF-8>", '<?xml version="1.0" encoding="utf-8"?>'):
        page = f"{start}<p>&auml;&rarr; ß</p>\r\n"
        assert run(page.encode()).decode() == f"{start}<p>Ä→ SS</p>\r\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<meta charset=koi8-r>", r"not in UTF-8 \(<meta charset=koi8-r\): convert"),
        (b"<p>b\xe4r", r"not valid UTF-8 \(byte 0xE4 at position 5\): convert it"),
    ],
)
def test_errors_are_one_line(run: Run, content: bytes, message: str) -> None:
    with input_error(f"page.html: {message}"):
        run(content)


def test_an_unknown_declaration_is_an_error_or_a_comment(run: Run) -> None:
    """The html.parser of Python 3.11.7 refuses it; that of 3.13.5 takes it for a comment."""
    try:
        found = run(b"<p>a</p>\n<![x[")
    except InputError as error:
        found = str(error).encode()
    message = b"page.html: line 2: unknown status keyword 'x' in marked section"
    assert found == b"<p>A</p>\n<![x[" or found.endswith(message)


def test_lines_whose_markup_does_not_parse(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = b'<!DOCTYPE html>\n<b>a</b> {n}\n<a title="x < y">z</a>\n'
    assert run(lines, "in.txt", markup="keep") == (
        b'<!DOCTYPE HTML>\n<b>A</b> {n}\n<A TITLE="X < Y">Z</A>\n'
    )
    assert capsys.readouterr().err == (
        "mt-translate: lines with markup that does not parse are translated as text; the first: "
        "'<!DOCTYPE html>'; for whole pages use format=html\n"
    )
