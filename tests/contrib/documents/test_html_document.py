"""HTML pages: their text is translated, and everything else stays byte for byte."""

import random

import pytest
from support.documents import capitals, parsed, tags

from transformer_mt.contrib.documents.html_document import HtmlDocument
from transformer_mt.contrib.documents.markup import Unplaced


def translated(page: str, *, reverse: bool = False) -> str:
    return capitals(parsed(HtmlDocument, page), reverse=reverse)


PAGE = """<!DOCTYPE html>
<html lang="en-US" class=no-js>
<head>
  <meta charset="utf-8"><title>Boats &amp; ships</title>
  <style>p > a { content: "text" }</style>
  <script>if (a < b && c) document.write("<p>text</p>");</script>
  <!-- a comment with <p>a tag</p> -->
</head>
<body onload='go("now")'>
  <h1>Boats<a class="headerlink" href="#boats" title="Link to this heading">¶</a></h1>
  <p id=first
     class="lead">A <a href="x?a=1&b=2" title="x < y">small <b>red</b></a> boat&nbsp;&mdash; it.<br>
     On a new line, AT&T.<sup><a href="#n">[1]</a></sup> Go, m<sup>2</sup>.
  <ul><li>A man<li><a href="dog.html">A dog</a></ul>
  <img src="boat.png" alt='A "boat"'> <input placeholder="&nbsp;Search" aria-label="Search here">
  <p>Call <code>sail(<i>fast</i>)</code>, or {name} at https://boats.org/.</p>
  <p><i class="icon"></i> 1 &lt; 2 and <!-- why? --> so on</p>
  <pre>  a  <b>b</b></pre><td>os.path</td><svg><text>no</text></svg>
</body>
</html>
"""


def test_a_page() -> None:
    expected = (
        PAGE.replace("Boats &amp; ships", "BOATS &amp; SHIPS")
        .replace('lang="en-US"', 'lang="de"')
        .replace('title="x < y">small <b>red</b>', 'title="X &lt; Y">SMALL <b>RED</b>')
        .replace("boat&nbsp;&mdash; it.<br>", "BOAT\xa0— IT.<br>")
        .replace("AT&T.", "AT&amp;T.")
        .replace('A "boat"\'', "A &quot;BOAT&quot;'")
        .replace("&nbsp;Search", "&nbsp;SEARCH")
    )
    others = [">Boats<", "Link to this heading", "On a new line", "A man", "A dog"]
    others += ['"Search here"', " Go, m", "Call ", ", or {", "} at ", "2 and ", "> so on<"]
    for text in others:
        expected = expected.replace(text, text.upper())
    assert translated(PAGE) == expected


@pytest.mark.parametrize(
    "page",
    [
        "<p></p><br/>\r\n",
        "<p translate=no>text <b>text</b></p>",
        "<p class='a notranslate'>text</p>",
        "<p lang=fr>texte</p><p xml:lang=fr>texte</p>",
        "<script>text",
        "5 <?php text <p>",
        "<p>12:30 &amp; 5 %</p><td>module.function()</td><p title=''>\ufeff</p>",
        "<code>text</code><textarea>text</textarea><math><mtext>text</mtext></math>",
        "<a href=text",
    ],
)
def test_untranslated(page: str, caplog: pytest.LogCaptureFixture) -> None:
    assert translated(page) == page
    assert len(caplog.messages) == page.endswith("text")  # it has no end


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<body translate=no><p>a<p translate=yes>b", "<body translate=no><p>a<p translate=yes>B"),
        ("See <span translate=no>Foo</span> now", "SEE <span translate=no>Foo</span> NOW"),
        ("<b>one<p>two</b> three</p>", "<b>ONE<p>TWO</b> THREE</p>"),
        ("a < b, <3 </ x> &lt;p> &notit; &", "A &lt; B, &lt;3 </ x> &lt;P&gt; ¬IT; &amp;"),
        ("<p>one<br/>two<hr>three", "<p>ONE<br/>TWO<hr>THREE"),
        ("<b>one</b>/<i>two</i><code>x</code>", "<b>ONE</b>/<i>TWO</i><code>x</code>"),
        ("one <svg><path/></svg> two<wbr> three", "ONE <svg><path/></svg> TWO<wbr> THREE"),
        ("<a>a</a> |<a>b</a>\n· <a>c</a>", "<a>A</a> |<a>B</a>\n· <a>C</a>"),
        ("<HTML LANG=en><P>one <x-y>two</x-y></P>", "<HTML LANG=de><P>ONE <x-y>TWO</x-y></P>"),
        (
            "a<a href=x><sup>1</sup></a>. b<a id=i></a>.",
            "A<a href=x><sup>1</sup></a>. B<a id=i></a>.",
        ),
        ("<p>Use {xi} or <b>{xj}</b>.", "<p>USE {xi} OR <b>{xj}</b>."),  # as codes of a line
    ],
)
def test_units(page: str, expected: str) -> None:
    assert translated(page) == expected


def test_elements_are_kept_in_any_order_of_words() -> None:
    choose = random.Random(1)
    inline = ["<b>", "</b>", "<i>", "</i>", "<code>", "</code>", "<img alt=x>", "<!--c-->", "{a}"]
    blocks = ["<p>", "</p>", "<br>", "<li>", "<td>", "</ul>", "<pre>", "</pre>", "<p translate=no>"]
    words = ["one", "two", "three", "&amp;", " ", ".", "\n"]
    for _ in range(300):
        page = "".join(choose.choice(inline + blocks + 3 * words) for _ in range(40))
        assert tags(translated(page, reverse=True)) == tags(page)


def test_a_unit_whose_markup_is_incomplete_stays_as_it_is() -> None:
    document = parsed(HtmlDocument, "<p>one <b>two</b></p>\n<p>three</p>")
    first, second = document.units
    text, failed = document.translated([first.line.replace("</x", "</y"), "drei"])
    assert text == "<p>one <b>two</b></p>\n<p>drei</p>"
    assert failed == [first]
    assert document.line_number(second.start) == 2
    opening, closing = first.codes
    for code in (opening, closing, f"2{opening}"):
        assert document.place(Unplaced(code, first.line)) == "<b> in line 1"
    assert document.place(Unplaced("{name}", second.line)) == "{name} in line 2"


def test_a_placeholder_alone_is_no_translation_of_words() -> None:
    document = parsed(HtmlDocument, "<p>{n} <b>children</b></p>")
    (unit,) = document.units
    opening, closing = unit.codes
    _, failed = document.translated([f"{opening}{{n}}{closing}"])
    assert failed == [unit]
    text, failed = document.translated([f"{{n}} {opening}3{closing}"])
    assert (text, failed) == ("<p>{n} <b>3</b></p>", [])


def test_a_model_of_several_languages_translates_all() -> None:
    page = '<p lang="fr">One <b lang="it">two</b></p>'
    units = parsed(HtmlDocument, page, "und", "en").units
    assert [unit.line for unit in units] == ["One <xe>two</xe>"]


def test_a_sentence_may_have_any_number_of_elements() -> None:
    page = "one <code>x</code> <b>two</b> and " * 500
    assert tags(translated(page)) == tags(page)
