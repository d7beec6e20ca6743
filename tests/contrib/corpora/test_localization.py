"""PO and XLIFF files as sources: finished translations, plural forms, placeholders, damage."""

from pathlib import Path

import pytest
from support.data_jobs import prepare_job, training_text, write_pairs
from support.errors import input_error

from transformer_mt.config import SourceConfig
from transformer_mt.data.prepare import prepare
from transformer_mt.data.text.sources import read_pairs

HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: de_AT\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""


def write(path: Path, text: str | bytes) -> SourceConfig:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return SourceConfig(**{"po" if path.suffix == ".po" else "xliff": str(path)})


def read(source: SourceConfig, src: str = "en", tgt: str = "de") -> list[tuple[str, str]]:
    return list(read_pairs([source], src_lang=src, tgt_lang=tgt))


# --- PO ---


def test_a_file_that_gettext_wrote(tmp_path: Path) -> None:
    """Of msgmerge 0.21: with a changed message, whose translation is fuzzy, and an open one."""
    source = SourceConfig(po=str(Path(__file__).with_name("msgmerge.po")))
    pairs = read(source)
    assert pairs == [
        ("Save {name} now", "{name} jetzt sichern"),
        ('a fox in "the" forest', "ein Fuchs im »Wald«"),
        ("%d child", "%d Kind"),
        ("%d children", "%d Kinder"),
    ]
    # As training text, beside the same pairs as TSV.
    valid = write_pairs(tmp_path / "valid.tsv", pairs)
    sources = [source, write_pairs(tmp_path / "b.tsv", pairs)]
    text = training_text(prepare(prepare_job(tmp_path, sources, 300, valid=[valid])))
    assert text[: len(pairs)] == text[len(pairs) :] == pairs


@pytest.mark.parametrize(
    ("rule", "forms", "expected"),
    [
        ("nplurals=1; plural=0;", "x", [("files", "x")]),
        ("nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);", "xyz", ["file", "files", "files"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", "xyz", ["files", "file", "files"]),
        ("", "xy", ["file", "files"]),
    ],
)  # fmt: skip
def test_plural_forms(tmp_path: Path, rule: str, forms: str, expected: list[str]) -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1);", rule)
    strings = "".join(f'msgstr[{i}] "{form}"\n' for i, form in enumerate(forms))
    message = f'msgid "file"\nmsgid_plural "files"\n{strings}'
    pairs = read(write(tmp_path / "a.po", header + message))
    assert [src for src, _ in pairs] == [x if isinstance(x, str) else x[0] for x in expected]
    assert "".join(tgt for _, tgt in pairs) == forms


def test_unfinished_messages_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        'msgid "a"\nmsgstr "ä"\n\n#, fuzzy\nmsgid "b"\nmsgstr "x"\n\nmsgid "c"\nmsgstr ""\n\n'
        'msgctxt "menu"\nmsgid "a"\nmsgstr "ae"\n\n'
        'msgid "d"\nmsgid_plural "ds"\nmsgstr[0] "d"\nmsgstr[1] ""\n\n'
        '#~ msgid "e"\n#~ msgstr "e"\n\n#~ msgid "f"\n#~ msgid_plural "fs"\n#~ msgstr[0] "f"\n'
    )
    caplog.set_level("INFO")
    assert read(write(tmp_path / "a.po", "\ufeff" + HEADER + text)) == [("a", "ä"), ("a", "ae")]
    assert "a.po: 4 text(s) without a finished translation are skipped" in caplog.text
    assert read(SourceConfig(po=str(tmp_path / "a.po")), "de", "en") == [("ä", "a"), ("ae", "a")]
    with input_error("a.po: is in de_AT, not in en and fr"):
        read(SourceConfig(po=str(tmp_path / "a.po")), tgt="fr")


# --- XLIFF ---

XLIFF_1 = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<!-- <source>a comment</source> -->
<file original="a" source-language="en-US" target-language="de"><header><note>n</note></header>
 <body>{}</body></file></xliff>"""
UNIT = '<trans-unit id="1"{}><source>{}</source>{}</trans-unit>'


def unit(source: str, target: str, state: str = "", attributes: str = "") -> str:
    state = f' state="{state}"' if state else ""
    return UNIT.format(attributes, source, f"<target{state}>{target}</target>")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (unit("one", "eins"), [("one", "eins")]),
        (unit("one", "eins", "translated", ' approved="yes"'), [("one", "eins")]),
        (unit("one", "eins", "needs-review-translation"), []),
        (unit("one", "eins", "new"), []),
        (unit("one", "eins", "translated", ' approved="no"'), []),
        (unit("one", "eins", "", ' translate="no"'), []),
        (f'<group translate="no">{unit("one", "eins")}</group>', []),
        (unit("one", " "), []),
        (UNIT.format("", "one", "<alt-trans><target>eins</target></alt-trans>"), []),
        (unit(" a\n   b ", "c &amp; <![CDATA[<d>]]>"), [("a b", "c & <d>")]),
        (unit('x <g id="1">y <mrk mtype="x-a">z</mrk></g>', "u"), [("x y z", "u")]),
        (unit('<bpt id="1">&lt;b></bpt>x<ept id="1">&lt;/b></ept>', "u"), [("x", "u")]),
        (unit('See <x id="1"/> <ph id="2">&lt;br/></ph>a', "u"), [("See  a", "u")]),
        (unit('<x id="I" equiv-text="{{ n }}"/> of <ph id="2">%1$s</ph>', "u"),
         [("{{ n }} of %1$s", "u")]),
    ],
)  # fmt: skip
def test_units_of_version_1(tmp_path: Path, content: str, expected: list[object]) -> None:
    last = unit("last", "letzte")  # so that there is a pair
    found = read(write(tmp_path / "a.xlf", XLIFF_1.format(content + last)))
    assert found == [*expected, ("last", "letzte")]
    turned = read(write(tmp_path / "a.xlf", XLIFF_1.format(content + last)), "de-AT", "en")
    assert turned == [pair[::-1] for pair in found]


def test_segments_are_pairs(tmp_path: Path) -> None:
    """As SDL's and memoQ's files have them; here the second has no translation."""
    marks = [f'<mrk mtype="seg" mid="{i}">{text}</mrk>' for i, text in enumerate("ABC")]
    targets = [marks[2].replace("C", "<g id='1'>c</g>"), marks[0].replace("A", "a")]
    source = f"A B C</source><seg-source>{' '.join(marks)}</seg-source><source>"
    text = XLIFF_1.format(unit(source, f"{' '.join(targets)} {marks[1].replace('B', '')}"))
    assert read(write(tmp_path / "a.sdlxliff", text)) == [("A", "a"), ("C", "c")]
    whole = text.replace(f"{' '.join(targets)} {marks[1].replace('B', '')}", "a b c")
    assert read(write(tmp_path / "a.sdlxliff", whole)) == [("A B C", "a b c")]


def test_version_2(tmp_path: Path) -> None:
    text = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:x"><file id="f">
<unit id="u"><originalData><data id="d">%d</data><data id="e">&lt;b></data></originalData>
 <segment state="translated">
  <source><pc id="1" dataRefStart="e"><ph id="2" dataRef="d"/> files</pc></source>
  <target><ph id="2" dataRef="d"/> Dateien</target></segment>
 <ignorable><source> </source></ignorable>
 <segment state="initial"><source>one</source><target>eins</target></segment>
 <segment><source>to <ph id="3" equiv="I" disp="{{name}}"/></source>
  <target>an <ph id="3" equiv="I" disp="{{name}}"/></target></segment>
</unit></file></xliff>"""
    expected = [("%d files", "%d Dateien"), ("to {{name}}", "an {{name}}")]
    assert read(write(tmp_path / "a.xlf", text)) == expected
    assert read(write(tmp_path / "b.xlf", text.encode("utf-16"))) == expected


def test_a_file_that_po2xliff_wrote() -> None:
    """Of translate-toolkit 3.19, from a PO file with a fuzzy message."""
    path = Path(__file__).with_name("po2xliff.xlf")
    assert read(SourceConfig(xliff=str(path))) == [
        ("Save {name} now", "{name} jetzt sichern"),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.po", 'msgid "a"\nmsgstr "b" c', r"Syntax error in po file \(line 2\)"),
        ("a.po", HEADER + 'msgid "a"\nmsgstr "\n\nmsgid "b"\nmsgstr ""', "line 8: close the quote"),
        ("a.po", b'msgid "a"\nmsgstr "\xe4"', "not valid UTF-8: convert it with msgconv"),
        ("a.po", HEADER.replace("n != 1", "x !"), "invalid token in plural form: x"),
        ("a.po", HEADER, "has no pairs"),
        ("a.xlf", "<xliff>\n<a>", "not well-formed XML: no element found: line 2"),
        ("a.xlf", "<xliff>&a;</xliff>", "not well-formed XML: undefined entity: line 1"),
        ("a.xlf", "<html/>", "not XLIFF: the root element is <html>"),
        ("a.xlf", XLIFF_1.format("").replace('"de"', '"fr"'), "en-US and fr, not in en and de"),
        ("a.xlf", XLIFF_1.format(unit("a", "b", "new")), "has no pairs"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with input_error(f"{name}.*{message}"):
        read(write(tmp_path / name, content))
