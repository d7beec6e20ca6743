"""Translation memories: text, languages, damage. The files are written with ElementTree."""

import gzip
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_mt.config import DataConfig, SourceConfig, TokenizerConfig, TrainJob
from transformer_mt.data.prepare import prepare
from transformer_mt.data.text.lines import is_blank
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.errors import InputError

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'

Texts = list[tuple[str, str | ET.Element]]
"""The texts of a unit, each with its language."""


def memory(units: list[Texts], lang: str = XML_LANG) -> ET.Element:
    root = ET.Element("tmx", version="1.4")
    ET.SubElement(root, "header", srclang="en").append(segment("not a segment", "note"))
    body = ET.SubElement(root, "body")
    for unit in units:
        tu = ET.SubElement(body, "tu")
        ET.SubElement(tu, "note").text = "a note"
        for language, text in unit:
            tuv = ET.SubElement(tu, "tuv", {lang: language})
            ET.SubElement(tuv, "prop", type="x").text = "a property"
            tuv.append(segment(text) if isinstance(text, str) else text)
    return root


def segment(text: str, name: str = "seg") -> ET.Element:
    element = ET.Element(name)
    element.text = text
    return element


def write(path: Path, content: ET.Element | str | bytes, encoding: str = "utf-8") -> SourceConfig:
    if isinstance(content, ET.Element):
        content = ET.tostring(content, encoding, xml_declaration=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return SourceConfig(tmx=str(path))


def read(source: SourceConfig, src: str = "en", tgt: str = "de") -> list[tuple[str, str]]:
    return list(read_pairs([source], src_lang=src, tgt_lang=tgt))


def error_of(source: SourceConfig, src: str = "en", tgt: str = "de") -> str:
    with pytest.raises(InputError) as caught:
        read(source, src, tgt)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pair(en: str | ET.Element, de: str | ET.Element) -> Texts:
    return [("en", en), ("de", de)]


# --- text ---

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n").filter(
    lambda c: (c >= " " and c not in "\ufffe\uffff") or c == "\t"
)
lines = st.text(characters, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(lines, lines), min_size=1, max_size=8),
    st.sampled_from(["utf-8", "utf-16", "us-ascii"]),
    st.integers(1, 40),
)
def test_text_is_that_of_the_file(
    tmp_path: Path, rows: list[tuple[str, str]], encoding: str, block: int
) -> None:
    """Spaces and every character of XML, in blocks that end anywhere; but for blank texts."""
    rows.append(("last", "letzte"))
    source = write(tmp_path / "a.tmx", memory([pair(*row) for row in rows]), encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_mt.data.text.lines._BLOCK_BYTES", block)
        assert read(source) == [row for row in rows if not any(map(is_blank, row))]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("\n      a  b \n\t c\r\n\r\n    ", "a  b c"),
        (" a\t \u2028\x85", " a\t \u2028\x85"),
        ("Click <bpt i='1'>&lt;b></bpt>here<ept i='1'>&lt;/b></ept>.", "Click here."),
        ("a<ph/>b <it pos='begin'>{\\i</it>c<ut>x</ut>", "ab c"),
        ("<hi type='x'>very</hi> <hi><hi>l</hi>arge</hi>", "very large"),
        ("x<ph>{fn <sub>They are <bpt>[b</bpt>big.</sub>}</ph> y.", "x They are big. y."),
        ("<![CDATA[<b>]]> &amp; &#228;<!-- no -->&lt;<?no?>", "<b> & ä<"),
        ("<seg>a</seg><tuv>b</tuv><tu/>", "ab"),
    ],
)
def test_a_text_is_one_line_without_code(tmp_path: Path, content: str, line: str) -> None:
    source = write(tmp_path / "a.tmx", document(unit(f"<seg>{content}</seg>", "<seg>b</seg>")))
    assert read(source) == [(line, "b")]


def unit(en: str, de: str) -> str:
    return f'<tu><tuv xml:lang="en">{en}</tuv><tuv xml:lang="de">{de}</tuv></tu>'


def document(*units: str, prolog: str = DOCTYPE) -> str:
    return f"{prolog}<tmx version='1.4'><header/><body>\n{''.join(units)}\n</body></tmx>"


words = st.text("abc", max_size=3)
trees = st.recursive(
    st.tuples(st.just("seg"), words, st.just([]), words),
    lambda inner: st.tuples(
        st.sampled_from(["bpt", "ept", "ph", "it", "ut", "hi", "sub", "x"]),
        words,
        st.lists(inner, max_size=3),
        words,
    ),
)


def tree(name: str, text: str, children: list[Any], tail: str) -> ET.Element:
    element = segment(text, name)
    element.tail = tail
    element.extend(tree(*child) for child in children)
    return element


def kept_text(element: ET.Element, kept: bool = True) -> str:
    """The definition, element by element: code drops its text, ``sub`` within it is a line."""
    text = (element.text or "") * kept
    for child in element:
        inside = child.tag == "sub" or (kept and child.tag not in ("bpt", "ept", "it", "ph", "ut"))
        part = kept_text(child, inside)
        text += part if kept or not inside else f"\n{part}\n"
        text += (child.tail or "") * kept
    return text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(trees)
def test_nested_inline_elements(tmp_path: Path, content: Any) -> None:
    element = segment("x")
    element.append(tree(*content))
    source = write(tmp_path / "a.tmx", memory([pair(element, "b")]))
    expected = " ".join(filter(None, kept_text(element).split("\n")))
    assert read(source) == [(expected, "b")]


@pytest.mark.parametrize(
    "blank",
    ["<seg/>", "<seg> \n\t</seg>", "<seg>&#160;&#8203;</seg>", "<seg><ph>{b}</ph> <it/></seg>"],
)
def test_a_blank_text_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, blank: str) -> None:
    """Neither a side of a pair nor the first of several texts in one language."""
    full = unit("<seg>a</seg>", "<seg>ä</seg>")
    variants = f'<tuv xml:lang="de-AT">{blank}</tuv><tuv xml:lang="de-DE"><seg>ö</seg></tuv>'
    several = unit("<seg>o</seg>", blank).replace("</tu>", f"{variants}</tu>")
    units = [full, unit("<seg>b</seg>", blank), unit(blank, "<seg>c</seg>"), several]
    source = write(tmp_path / "a.tmx", document(*units))
    caplog.set_level(logging.INFO)
    assert read(source) == [("a", "ä"), ("o", "ö")]
    assert "2 of 4 units have no text in en or in de" in caplog.text
    assert "0 text(s) are ignored" in caplog.text
    assert "none of its 1 units" in error_of(write(tmp_path / "b.tmx", document(units[1])))


# --- languages ---

THREE: Texts = [("EN-us", "color"), ("fr", "F"), ("de-AT", "Jänner"), ("de-DE", "Januar")]


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("en", "de", ("color", "Jänner")),
        ("deu", "eng", ("Jänner", "color")),
        ("en-US", "de_DE", ("color", "Januar")),
        ("de-DE", "de-AT", ("Januar", "Jänner")),
        ("de", "de-AT", ("Januar", "Jänner")),
        ("de-DE", "de", ("Januar", "Jänner")),
    ],
)
def test_languages_and_their_regions(
    tmp_path: Path, src: str, tgt: str, expected: tuple[str, str]
) -> None:
    source = write(tmp_path / "a.tmx", memory([THREE]))
    assert read(source, src, tgt) == [expected]
    source = SourceConfig(tmx=source.tmx, src_lang=src, tgt_column=tgt)
    assert read(source, "und", "mul") == [expected]
    old_version = write(tmp_path / "b.tmx", memory([THREE], lang="lang"))
    assert read(old_version, src, tgt) == [expected]


def test_what_is_not_used_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    no_text = ET.Element("note")
    units = [THREE, pair("a", "b"), [("en", "c"), ("fr", "d")], [("de", "e")], pair("f", no_text)]
    source = write(tmp_path / "a.tmx", memory(units))
    caplog.set_level(logging.INFO)
    for _ in range(2):
        assert read(source) == [("color", "Jänner"), ("a", "b")]
    (message,) = caplog.messages
    assert "3 of 5 units have no text in en or in de" in message
    assert "1 text(s) are ignored" in message
    caplog.clear()
    assert read(write(tmp_path / "b.tmx", memory([pair("a", "b")]))) == [("a", "b")]
    assert not caplog.records
    error = error_of(source, "en", "es")
    assert error.startswith(f"{source.tmx}: none of its 5 units has text in both en and es")
    assert "its languages: EN-us, de, de-AT, de-DE, en, fr; choose two" in error


# --- as training data ---


def test_the_corpus_equals_that_of_two_files(tmp_path: Path) -> None:
    """Whatever its languages, inline elements and skipped units."""
    rows = [(f"A dog, {i}\u2028 &  so", f"Ein Hund, {i * i}") for i in range(40)]
    units = [unit("<seg>x</seg>", "")]
    for row in rows:
        texts = [f"<seg>{escape(text)}</seg>".replace(", ", ",<ph>{b}</ph> <hi/>") for text in row]
        units.append(unit(*texts).replace("</tu>", "<tuv xml:lang='fr'><seg>x</seg></tuv></tu>"))
    for lang, side in zip(("en", "de"), zip(*rows, strict=True), strict=True):
        (tmp_path / lang).write_bytes("".join(f"{line}\n" for line in side).encode())
    two = SourceConfig(src=str(tmp_path / "en"), tgt=str(tmp_path / "de"))
    one = write(tmp_path / "a.tmx", document(*units))
    corpora = []
    for source in (one, two, one):
        data = DataConfig(src_lang="en", tgt_lang="de", train=[source], valid=[two], workers=0)
        cache = str(tmp_path / "cache")
        job = TrainJob(cache_dir=cache, data=data, tokenizer=TokenizerConfig(vocab_size=300))
        corpora.append(prepare(job))
    assert len(corpora[0].train) == len(rows)
    assert corpora[0].fingerprints == corpora[1].fingerprints
    assert corpora[0].corpus == corpora[2].corpus != corpora[1].corpus


# --- DTDs and entities ---


@pytest.mark.parametrize(
    "prolog",
    [
        '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">',
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for TMX//EN" "tmx14.dtd">',
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ELEMENT seg ANY><!ATTLIST tuv x CDATA "y">]>',
        '<!DOCTYPE tmx SYSTEM "file:///etc/passwd">',
    ],
)
def test_a_dtd_is_not_loaded(tmp_path: Path, prolog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmx14.dtd").write_text("not a DTD <")
    monkeypatch.chdir(tmp_path)
    text = document(unit("<seg>a</seg>", "<seg>b</seg>"), prolog=prolog)
    source = write(tmp_path / "a.tmx", text)
    opened: list[object] = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    assert read(source) == [("a", "b")]
    assert [path for path in opened if str(path) != source.tmx] == []


BOMB = "".join(f"<!ENTITY l{i} '{f'&l{i - 1};' * 10}'>" for i in range(1, 10))

EXTERNAL = "<!DOCTYPE tmx [\n<!ENTITY x SYSTEM 'file:///etc/passwd'>]><tmx>&x;</tmx>"
PARAMETER = "<!DOCTYPE tmx [<!ENTITY % x SYSTEM 'http://127.0.0.1:9/x'> %x;]><tmx/>"

EXTERNAL = "<!DOCTYPE tmx [\n<!ENTITY x SYSTEM 'file:///etc/passwd'>]><tmx>&x;</tmx>"
PARAMETER = "<!DOCTYPE tmx [<!ENTITY % x SYSTEM 'http://127.0.0.1:9/x'> %x;]><tmx/>"

# Name: content, line, column, message.
BROKEN: dict[str, tuple[str | bytes, int, int, str]] = {
    "empty": ("", 1, 1, "not well-formed XML: no element found"),
    "truncated in the body": (document().removesuffix("</body></tmx>"), 3, 1, "no element found"),
    "text without an end": (document(unit("<seg>a</seg>", "<seg>b")), 2, 69, "mismatched tag"),
    "control character": (document(unit("<seg>\x1f</seg>", "")), 2, 29, "invalid token"),
    "Latin-1": (document(unit("<seg>Bär</seg>", "")).encode("latin1"), 2, 30, "invalid token"),
    "unknown encoding": ("<?xml version='1.0' encoding='x-y'?><tmx/>", 1, 31, "unknown encoding"),
    "Shift JIS": ("<?xml version='1.0' encoding='shift_jis'?><tmx/>", 1, 31, "multi-byte enc"),
    "half of UTF-16": (document().encode("utf-16")[:-1], 3, 8, "unclosed token"),
    "XLIFF": ("<xliff version='1.2'/>", 1, 1, "not TMX: the root element is <xliff>"),
    "no language": (document("<tu>\n <tuv><seg>a</seg></tuv></tu>"), 3, 2, "<tuv> has no xml:lang"),
    "entity": (document(unit("<seg>a&nbsp;b</seg>", "")), 2, 30, "uses the entity nbsp"),
    "bomb": (f"<!DOCTYPE tmx [<!ENTITY l0 'lol'>{BOMB}]><tmx>&l9;</tmx>", 1, 28, "the entity l0"),
    "external entity": (EXTERNAL, 2, 39, "uses the entity x"),
    "parameter entity": (PARAMETER, 1, 58, "uses the entity x"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path: Path, name: str) -> None:
    content, line, column, message = BROKEN[name]
    source = write(tmp_path / "a.tmx", content)
    error = error_of(source)
    assert error.startswith(f"{source.tmx}, line {line}, column {column}: ")
    assert message in error


def test_compressed_and_damaged(tmp_path: Path) -> None:
    """Pairs before the damage are read, and the message says where it is."""
    rows = [(f"a {i}", f"b {i * i}") for i in range(20_000)]
    data = ET.tostring(memory([pair(*row) for row in rows])).replace(b"<tu>", b"\n<tu>")
    source = write(tmp_path / "a.tmx.gz", gzip.compress(data))
    assert read(source) == rows
    write(tmp_path / "a.tmx.gz", gzip.compress(data)[:-100])
    stream = read_pairs([source], src_lang="en", tgt_lang="de")
    assert next(stream) == rows[0]
    with pytest.raises(InputError, match=r"a\.tmx\.gz: damaged or incomplete after line \d{3,} \("):
        list(stream)
    zipped = write(tmp_path / "b.tmx", b"PK\3\4")
    assert error_of(zipped) == f"{zipped.tmx} is compressed: decompress it with unzip"


MEASURED = """
import resource, sys
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pairs = read_pairs([SourceConfig(tmx=sys.argv[1])], src_lang="en", tgt_lang="de")
next(pairs)
before = peak()
print(sum(1 for _ in pairs) + 1, peak() - before)
"""


def test_memory_is_bounded(tmp_path: Path) -> None:
    """30 MB in a single line, as some tools write it."""
    one = unit(f"<seg>{'a word ' * 20}<ph>{{b}}</ph></seg>", f"<seg>{'ein Wort ' * 20}</seg>")
    count = 30_000_000 // len(one)
    source = write(tmp_path / "a.tmx", document(one * count))
    command = [sys.executable, "-c", MEASURED, str(source.tmx)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pairs, kib = map(int, done.stdout.split())
    assert pairs == count
    assert kib < 16 << 10
