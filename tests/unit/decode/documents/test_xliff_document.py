"""XLIFF: sources without a translation get a target, and everything else stays byte for byte."""

import time

import pytest
from support.documents import capitals

from transformer_mt.decode.documents.xliff_document import parse_xliff
from transformer_mt.errors import InputError


def translated(text: str) -> str:
    return capitals(parse_xliff(text, "en", "de"))


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


def test_byte_order_mark_prefixes_and_lines() -> None:
    unit = "<x:trans-unit><x:source>\na</x:source></x:trans-unit>"
    text = f'\ufeff<x:xliff xmlns:x="u" version="1.2">\n{unit}</x:xliff>'
    document = parse_xliff(text, "en", "de")
    assert capitals(document) == text.replace(
        "</x:source>", f"</x:source><x:target{STATE}>\nA</x:target>"
    )
    assert document.line_number(document.units[0].start) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: not well-formed XML: no element found"),
        ("<xliff>\n<file>\n</xliff>", "line 3, column 3: not well-formed XML: mismatched tag"),
        ("<xliff>\n&bomb;</xliff>", "line 2, column 1: not well-formed XML: undefined entity"),
        ("\n<!DOCTYPE x [<!ENTITY a 'b'>]><xliff/>", "line 2: has a DTD: remove it"),
        ("<html></html>", "not XLIFF: the root element is <html>"),
        ("<xliff srcLang='fr'/>", "srcLang is fr, but the model translates en to de"),
        ("<xliff><file target-language='it'/></xliff>", "target-language is it, but"),
        ("<xliff>\udcff</xliff>", "line 1, column 8: not well-formed XML"),
    ],
)
def test_broken_files_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_xliff(text, "en", "de")


def test_a_model_of_several_languages_takes_those_of_the_file() -> None:
    text = '<xliff srcLang="fr" trgLang="it"/>'
    assert capitals(parse_xliff(text, "und", "mul")) == text


def test_large_files_take_time_in_proportion() -> None:
    unit = "<trans-unit><source>Some <g id='1'>text</g> here</source></trans-unit>\n"
    start = time.perf_counter()
    document = parse_xliff(f"<xliff>{unit * 10_000}</xliff>", "en", "de")
    assert len(document.units) == 10_000
    assert time.perf_counter() - start < 30
