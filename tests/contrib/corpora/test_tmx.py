"""Translation memories: text, languages, damage."""

import logging
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.errors import input_error

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs

DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'


def variant(lang: str, content: str) -> str:
    return f'<tuv xml:lang="{lang}">{content}</tuv>'


def unit(en: str, de: str) -> str:
    return f"<tu>{variant('en', en)}{variant('de', de)}</tu>"


def segment(text: str) -> str:
    return f"<seg>{escape(text)}</seg>"


def document(*units: str, prolog: str = DOCTYPE) -> str:
    header = "<header srclang='en'><note>not a segment</note></header>"
    return f"{prolog}<tmx version='1.4'>{header}<body>\n{''.join(units)}\n</body></tmx>"


def write(path: Path, content: str | bytes) -> SourceConfig:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return SourceConfig(tmx=str(path))


def read(source: SourceConfig, src: str = "en", tgt: str = "de") -> list[tuple[str, str]]:
    return list(read_pairs([source], src_lang=src, tgt_lang=tgt))


def error_of(source: SourceConfig, src: str = "en", tgt: str = "de") -> str:
    with input_error() as caught:
        read(source, src, tgt)
    return str(caught.value)


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
    declaration = f"<?xml version='1.0' encoding='{encoding}'?>"
    text = document(*(unit(*map(segment, row)) for row in rows), prolog=declaration)
    source = write(tmp_path / "a.tmx", text.encode(encoding, "xmlcharrefreplace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_mt.data.text.lines._BLOCK_BYTES", block)
        assert read(source) == [row for row in rows if all(map(str.strip, row))]


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


@pytest.mark.parametrize(
    "blank", ["<seg/>", "<seg>&#160;\t</seg>", "<seg><ph>{b}</ph> <it/></seg>"]
)
def test_a_blank_text_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, blank: str) -> None:
    """Neither a side of a pair nor the first of several texts in one language."""
    full = unit("<seg>a</seg>", "<seg>ä</seg>")
    variants = variant("de-AT", blank) + variant("de-DE", "<seg>ö</seg>")
    several = unit("<seg>o</seg>", blank).replace("</tu>", f"{variants}</tu>")
    units = [full, unit("<seg>b</seg>", blank), unit(blank, "<seg>c</seg>"), several]
    source = write(tmp_path / "a.tmx", document(*units))
    caplog.set_level(logging.INFO)
    assert read(source) == [("a", "ä"), ("o", "ö")]
    assert "2 of 4 units have no text in en or in de" in caplog.text
    assert "none of its 1 units" in error_of(write(tmp_path / "b.tmx", document(units[1])))


# --- languages ---

TEXTS = {"EN-us": "color", "fr": "F", "de-AT": "Jänner", "de-DE": "Januar"}
PROPERTY = "<prop type='x'>a property</prop>"
THREE = "<tu><note>a note</note>{}</tu>".format(
    "".join(variant(lang, PROPERTY + segment(text)) for lang, text in TEXTS.items())
)


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("en", "de", ("color", "Jänner")),
        ("deu", "eng", ("Jänner", "color")),
        ("en-US", "de_DE", ("color", "Januar")),
        ("de", "de-AT", ("Januar", "Jänner")),
    ],
)
def test_languages_and_their_regions(
    tmp_path: Path, src: str, tgt: str, expected: tuple[str, str]
) -> None:
    source = write(tmp_path / "a.tmx", document(THREE))
    assert read(source, src, tgt) == [expected]
    source = SourceConfig(tmx=source.tmx, src_lang=src, tgt_column=tgt)
    assert read(source, "und", "mul") == [expected]
    old_version = write(tmp_path / "b.tmx", document(THREE.replace("xml:lang", "lang")))
    assert read(old_version, src, tgt) == [expected]


# --- entities, damage ---

EXTERNAL = "<!DOCTYPE tmx [\n<!ENTITY x SYSTEM 'file:///etc/passwd'>]><tmx>&x;</tmx>"

# Name: content, line, column, message.
BROKEN: dict[str, tuple[str | bytes, int, int, str]] = {
    "empty": ("", 1, 1, "not well-formed XML in a known encoding: no element found"),
    "truncated in the body": (document().removesuffix("</body></tmx>"), 3, 1, "no element found"),
    "Latin-1": (document(unit("<seg>Bär</seg>", "")).encode("latin1"), 2, 30, "invalid token"),
    "unknown encoding": ("<?xml version='1.0' encoding='x-y'?><tmx/>", 1, 31, "unknown encoding"),
    "XLIFF": ("<xliff version='1.2'/>", 1, 1, "not TMX: the root element is <xliff>"),
    "no language": (document("<tu>\n <tuv><seg>a</seg></tuv></tu>"), 3, 2, "<tuv> has no xml:lang"),
    "entity": (document(unit("<seg>a&nbsp;b</seg>", "")), 2, 30, "uses the entity nbsp"),
    "external entity": (EXTERNAL, 2, 39, "uses the entity x"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path: Path, name: str) -> None:
    content, line, column, message = BROKEN[name]
    source = write(tmp_path / "a.tmx", content)
    error = error_of(source)
    assert error.startswith(f"{source.tmx}, line {line}, column {column}: ")
    assert (message in error, error.count(" column ")) == (True, 1)
