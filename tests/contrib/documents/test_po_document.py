"""PO files: open messages are translated, everything else stays; msgfmt accepts the result."""

import shutil
import subprocess
from pathlib import Path
from typing import cast

import pytest
from support.documents import Capitals

from transformer_mt import InputError, Translator
from transformer_mt.config import TranslateJob
from transformer_mt.contrib.documents.markup import MarkupTranslator
from transformer_mt.contrib.documents.po_document import PoDocument
from transformer_mt.protocols import TranslatedDocument

HEADER = r"""# Messages of a program.
msgid ""
msgstr ""
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"Language: de\n"
"X-Generator:   me\n"
"Content-Type: text/plain; charset=UTF-8\n"

"""
REST = r"""
msgid "Two women"
msgstr ""
"Zwei "
"Frauen"

#~ msgid "old"
#~ msgstr ""

#, fuzzy
#~ msgid "older"
#~ msgstr "alt"
"""


def po_document(*, fuzzy: bool = False) -> PoDocument:
    return PoDocument(TranslateJob(model="unused", format="po", fuzzy=fuzzy))


def translated(content: bytes, *, fuzzy: bool = False) -> TranslatedDocument:
    document = po_document(fuzzy=fuzzy)
    lines = document.read(content, "en", "de")
    translator = MarkupTranslator(cast(Translator, Capitals()), document.unplaced)
    best = translator.translate_nbest(lines, 1)
    return document.write([translations[0].text for translations in best])


def test_a_file_without_a_header() -> None:
    content = b'msgid "one"\nmsgstr ""\n\nmsgid "two"\nmsgstr ""\n\n# The end.\n'
    expected = b'msgid "one"\nmsgstr "ONE"\n\nmsgid "two"\nmsgstr "TWO"\n\n# The end.\n'
    assert translated(content).content == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('msgid "one"\nmsgstr ""\n', 'msgid "one"\nmsgstr "ONE"\n'),
        ('msgctxt "a"\nmsgid "b"\nmsgstr ""\n', 'msgctxt "a"\nmsgid "b"\nmsgstr "B"\n'),
        ('#: a.c:5\n#, fuzzy, c-format\n#| msgid "on"\nmsgid "one"\nmsgstr "x"\n',
         '#: a.c:5\n#, c-format\nmsgid "one"\nmsgstr "ONE"\n'),
        ('msgid "one"\nmsgid_plural "%d ones"\nmsgstr[0] ""\nmsgstr[1] ""\n',
         'msgid "one"\nmsgid_plural "%d ones"\nmsgstr[0] "ONE"\nmsgstr[1] "%d ONES"\n'),
        ('msgid "one"\nmsgid_plural "ones"\nmsgstr[0] "eins"\n',
         'msgid "one"\nmsgid_plural "ones"\nmsgstr[0] "eins"\nmsgstr[1] "ONES"\n'),
        (f'# {90 * "x"} y\n#. {90 * "z"} z\n#: a.c:1\n#: b c.c:2\nmsgid "one"\nmsgstr ""\n',
         f'# {90 * "x"} y\n#. {90 * "z"} z\n#: a.c:1\n#: b c.c:2\nmsgid "one"\nmsgstr "ONE"\n'),
        ('msgid " a\\n\\n  b "\nmsgstr ""\n',
         'msgid ""\n" a\\n"\n"\\n"\n"  b "\nmsgstr ""\n" A\\n"\n"\\n"\n"  B "\n'),
        ('msgid "%(a)s has {b} <i>c</i>"\nmsgstr ""\n',
         'msgid "%(a)s has {b} <i>c</i>"\nmsgstr "%(a)s HAS {b} <i>C</i>"\n'),
        ('msgid "%s: %d"\nmsgstr ""\n', 'msgid "%s: %d"\nmsgstr "%s: %d"\n'),
    ],
)  # fmt: skip
def test_open_messages_are_translated(given: str, expected: str, tmp_path: Path) -> None:
    for newline in ("\n", "\r\n"):
        content = (HEADER + given + REST).replace("\n", newline).encode()
        result = translated(content)
        assert result.content == (HEADER + expected + REST).replace("\n", newline).encode()
        assert (result.num_translated, result.warnings) == (1, [])
        assert translated(result.content) == TranslatedDocument(result.content, 0, [])
    if program := shutil.which("msgfmt"):
        (tmp_path / "a.po").write_bytes((HEADER + expected + REST).encode())
        subprocess.run(
            [program, "--check-format", "-o", "/dev/null", tmp_path / "a.po"], check=True
        )


@pytest.mark.parametrize(
    ("rule", "forms"),
    [
        ("nplurals=1; plural=0", "BS"),
        ("nplurals=3; plural=(n != 1)", "A BS BS"),
        ("nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2", "BS A BS"),  # as in Arabic
        ("nplurals=2", "A BS"),
    ],
)
def test_other_rules_of_plural_forms(rule: str, forms: str) -> None:
    header, number = HEADER.replace("nplurals=2; plural=(n != 1)", rule), len(forms.split())
    message = 'msgid "a"\nmsgid_plural "bs"\nmsgstr[0] ""\n'
    lines = translated((header + message).encode()).content.decode().splitlines()[-number:]
    assert lines == [f'msgstr[{i}] "{form}"' for i, form in enumerate(forms.split())]


def test_what_has_no_translation_stays() -> None:
    content = (HEADER + 'msgid "a\\nb"\nmsgstr ""\n\nmsgid "c"\nmsgstr ""').encode()
    document = po_document()
    assert document.read(content, "en", "de") == ["a", "b", "c"]
    result = document.write(["A", "", "C"])
    assert result.content == content[:-2] + b'"C"'
    assert result.num_translated == 1
    assert result.warnings == [
        "1 text(s) have no usable translation and were left as they are: line 9"
    ]


def test_new_translations_are_fuzzy_unless_the_job_says_otherwise() -> None:
    content = b'#, c-format\nmsgid "%d child"\nmsgstr ""\n\nmsgid "two"\nmsgstr "zwei"\n'
    expected = content.replace(b'child"\nmsgstr ""', b'child"\nmsgstr "%d CHILD"')
    assert TranslateJob(model="unused", format="po").fuzzy
    assert translated(content, fuzzy=False).content == expected
    marked = expected.replace(b"#, c-format", b"#, fuzzy, c-format")
    assert translated(content, fuzzy=True).content == marked
    with pytest.raises(InputError, match="fuzzy=false applies to PO files"):
        TranslateJob(model="unused", fuzzy=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'msgid "a"\nmsgstr "b" c', r"Syntax error in po file \(line 2\)"),
        (HEADER.replace("n != 1", "n <> 1").encode(), "^Plural-Forms: unexpected token"),
        (b'msgid "a"\r\nmsgstr ""\r\n"a\\"\r\n', "^line 3: close the quote$"),
        (b"\xff", r"not valid UTF-8 \(byte 0xFF at position 1\): convert it"),
        (HEADER.replace("UTF-8", "koi8-r").encode(), "charset=koi8-r: convert it with msgconv"),
        (HEADER.replace(": de", ": fr").encode(), "Language is fr, but the model translates to de"),
    ],
)
def test_errors_are_one_line(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        translated(content)


def test_files_without_messages() -> None:
    for content in (b"", HEADER.encode(), b"# CHARSET\n"):
        assert translated(content).content == content
