"""XLIFF: sources without a translation get a target, and everything else stays byte for byte."""

import pytest
from support.documents import capitals, parsed

from transformer_mt.contrib.documents.xliff_document import XliffDocument
from transformer_mt.errors import InputError


def translated(text: str) -> str:
    return capitals(parsed(XliffDocument, text))


XLIFF_1 = """<?xml version="1.0" encoding="utf-8"?>
<!-- <source>a comment</source> -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a.html" source-language="en-GB" datatype='html'{language}><body>
  <trans-unit id="1">
    <source>Save <g id="1" ctype="x > y">all <x id="2"/></g> files &amp; g</source>{first}
    <note>a note</note>
  </trans-unit>
  <trans-unit id="2" translate="no"><source>name</source></trans-unit>
  <trans-unit id="3"><source>Done</source><target>Fertig</target></trans-unit>
  <trans-unit id="4"><source>New</source><target{state}>{new}</target></trans-unit>
  <trans-unit id="5"><source>By <mrk mtype="protected">ACME</mrk></source>{fifth}
    <alt-trans><source>a</source><target>b</target></alt-trans></trans-unit>
  <group translate="no"><trans-unit id="6"><source>no</source></trans-unit></group>
  <trans-unit id="7"><source><bpt id="1">&lt;b></bpt>Bold<ept id="1">&lt;/b></ept> text
    <![CDATA[a < b]]> <ph id="2">{{name}}</ph></source>{seventh}</trans-unit>
  <trans-unit id="8"><source/></trans-unit>
  <trans-unit id="without source"><note>a note</note></trans-unit>
 </body></file>
</xliff>
"""
STATE = ' state="needs-review-translation"'


def test_version_1() -> None:
    text = XLIFF_1.format(
        language="", first="", state=' state="new" x="y"', new="New", fifth="<target/>", seventh=""
    )
    assert translated(text) == XLIFF_1.format(
        language=' target-language="de"',
        first=f'\n    <target{STATE}>SAVE <g id="1" ctype="x > y">ALL <x id="2"/></g> FILES &amp; G'
        "</target>",
        state=f' x="y"{STATE}',
        new="NEW",
        fifth=f'<target{STATE}>BY <mrk mtype="protected">ACME</mrk></target>',
        seventh=f'<target{STATE}><bpt id="1">&lt;b></bpt>BOLD<ept id="1">&lt;/b></ept> TEXT '
        'A &lt; B <ph id="2">{name}</ph></target>',
    )


XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de-DE" xmlns="urn:x">
<file id="f"><unit id="u">
 <segment{state}>
  <source>Read <pc id="1">the <mrk id="m" translate="no">FAQ</mrk></pc>,
  <sc id="2"/>now<ec startRef="2"/></source>{target}
 </segment>
 <ignorable><source> </source></ignorable>
 <segment id="without source"> </segment>
 <segment state="reviewed"><source>Done</source><target>Fertig</target></segment>
</unit></file>
</xliff>"""


def test_version_2() -> None:
    target = (
        '\n  <target>READ <pc id="1">THE <mrk id="m" translate="no">FAQ</mrk></pc>, '
        '<sc id="2"/>NOW<ec startRef="2"/></target>'
    )
    state = ' state="translated"'
    assert translated(XLIFF_2.format(state="", target="")) == (
        XLIFF_2.format(state=state, target=target)
    )
    old = XLIFF_2.format(state=' state="initial"', target="\n  <target>x</target>")
    assert translated(old) == XLIFF_2.format(state=state, target=target)


SEGMENTS = """<xliff version="1.2"><file source-language="en"><body><trans-unit id="1">
<source>One <g id="1">two</g>. Three.</source><seg-source><mrk mtype="seg" mid="1">One
 <g id="1">two</g>.</mrk> <mrk mtype="seg" mid="2">Three.</mrk></seg-source>
</trans-unit></body></file></xliff>"""


def test_segments_are_units_and_keep_their_marks() -> None:
    document = parsed(XliffDocument, SEGMENTS)
    assert len(document.units) == 2
    assert (
        '<mrk mtype="seg" mid="1">ONE <g id="1">TWO</g>.</mrk> '
        '<mrk mtype="seg" mid="2">THREE.</mrk></target>'
    ) in capitals(document).replace("\n", "")


def segments(*texts: str) -> list[str]:
    return [f'<mrk mtype="seg" mid="{i}">{text}</mrk>' for i, text in enumerate(texts, 1)]


SOURCE = " ".join(segments("One.", "Two.", " "))
FIRST, SECOND = segments("Eins.", "Zwei.")
NO_FIRST, NO_SECOND, NO_THIRD = segments("", " ", "")
NEW_FIRST, NEW_SECOND = segments("ONE.", "TWO.")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"{FIRST}\n{NO_SECOND}", f"{FIRST}\n{NEW_SECOND}"),
        (f'<mrk mtype="seg" mid="1"/> {SECOND}', f"{NEW_FIRST} {SECOND}"),
        (f"{NO_FIRST} {NO_SECOND}", SOURCE.replace("One", "ONE").replace("Two", "TWO")),
        (f"{SECOND}{NO_FIRST}{NO_THIRD}", f"{SECOND}{NEW_FIRST}{NO_THIRD}"),  # in another order
        (FIRST, None),  # it lacks the second one
        (f"<g id='1'>{FIRST} {NO_SECOND}</g>", f"<g id='1'>{FIRST} {NEW_SECOND}</g>"),
        (f"{FIRST} und {NO_SECOND}.", f"{FIRST} und {NEW_SECOND}."),
        (f"{FIRST} {SECOND}", None),
        (f"{FIRST} {SECOND.replace('Zwei.', '<x/>')} {NO_THIRD}", None),
        ("Eins. Zwei.", None),  # not in segments
    ],
)
def test_segments_without_a_translation_get_one(target: str, expected: str | None) -> None:
    text = f"""<xliff version="1.2"><file><body><trans-unit id="1"><source>One. Two.</source>
    <seg-source>{SOURCE}</seg-source><target>{target}</target></trans-unit></body></file></xliff>"""
    for state in ("", ' state="final"'):
        given = text.replace("<target>", f"<target{state}>")
        written = given if expected is None else given.replace(target, expected)
        if expected is not None and not state:
            written = written.replace("<target", f"<target{STATE}")
        assert translated(given) == written
        replaced = text.replace("<target>", '<target state="new">')
        assert f"{NEW_FIRST} {NEW_SECOND}" in translated(replaced)


def test_tags_in_text_are_markup() -> None:
    text = """<xliff version="1.2"><file source-language="en"><body><trans-unit id="1">
    <source>{}</source></trans-unit></body></file></xliff>"""
    escaped, cdata = "A &lt;b&gt;man&lt;/b&gt; &amp;amp; a dog", "A <b>man</b> &amp; a dog"
    for source in (escaped, f"<![CDATA[{cdata}]]>"):
        (unit,) = parsed(XliffDocument, text.format(source)).units
        assert unit.line == "A <b>man</b> &amp; a dog"
        target = ">A &lt;b&gt;MAN&lt;/b&gt; &amp;amp; A DOG</target>"
        assert target in translated(text.format(source))
    (unit,) = parsed(XliffDocument, text.format("if a &lt; b and c &gt; d")).units
    assert unit.line == "if a &lt; b and c &gt; d"


def test_byte_order_mark_prefixes_and_lines() -> None:
    unit = "<x:trans-unit><x:source>\na</x:source></x:trans-unit>"
    text = f'\ufeff<x:xliff xmlns:x="u" version="1.2">\n{unit}</x:xliff>'
    document = parsed(XliffDocument, text)
    assert capitals(document) == text.replace(
        "</x:source>", f"</x:source><x:target{STATE}>\nA</x:target>"
    )
    assert document.line_number(document.units[0].start) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: not well-formed XML: no element found"),
        ("\n<!DOCTYPE x [<!ENTITY a 'b'>]><xliff/>", "line 2: has a DTD: remove it"),
        ("<html></html>", "not XLIFF: the root element is <html>"),
        ("<xliff srcLang='fr'/>", "srcLang is fr, but the model translates en to de"),
        ("<xliff><file target-language='it'/></xliff>", "target-language is it, but"),
    ],
)
def test_broken_files_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parsed(XliffDocument, text)


def test_a_model_of_several_languages_takes_those_of_the_file() -> None:
    text = '<xliff srcLang="fr" trgLang="it"/>'
    assert capitals(parsed(XliffDocument, text, "und", "mul")) == text
    assert "pt-BR" in capitals(parsed(XliffDocument, '<xliff srcLang="en"/>', "en", "pt_BR"))
