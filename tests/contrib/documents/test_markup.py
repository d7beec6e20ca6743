"""Markup is restored in the translation, exactly once and properly nested."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents import Capitals
from support.tokenizers import options_of_others, small_tokenizer

from transformer_mt.config import DataConfig
from transformer_mt.contrib.documents.markup import MarkupTranslator, extract_markup
from transformer_mt.contrib.documents.tag_placement import restore_markup
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import split_tag
from transformer_mt.decode.lines.alignment import source_word_ids
from transformer_mt.protocols import Translation

NUMBERS = [str(number) for number in range(10, 100)]


def translated(line: str, order: Sequence[int] | None = None) -> str:
    """Puts the words in capitals, in the order given, and the markup of the line back."""
    source = extract_markup(line, str.strip, NUMBERS)
    words = source.text.split()
    order = range(len(words)) if order is None else order
    links = [(word, target) for target, word in enumerate(order)]
    return restore_markup(source, " ".join(words[word].upper() for word in order), links, [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Click (<b>here</b>), please.", "CLICK (<b>HERE</b>), PLEASE."),
        ("<p>A <i>big <b>red</b></i>, world</p>", "<p>A <i>BIG <b>RED</b></i>, WORLD</p>"),
        ("Not </b> opened, not <i> closed", "NOT </b> OPENED, NOT <i> CLOSED"),
        ("un<b>believ</b>able", "<b>UNBELIEVABLE</b>"),
        ("<a><b>[</b>1<i>]</i></a> x", "<a><i></i><b>[1</b>]</a> X"),  # a word for two pairs
        ("<b>1</b>/<i>b</i>-{c}<x/>{a}, <b>so: </b>", "<b>1</b>/<i>B</i>-{c}<x/>{a}, <b>SO: </b>"),
        ("Crossed <b>x <i>y</b> z</i> w", "CROSSED <b>X <i>Y</b> Z</i> W"),
        ("%s of %(all)d, %1$s, {{sum}}", "%s OF %(all)d, %1$s, {{sum}}"),
        ("%zu in %s%s, %dx%d, %L2 %ds by %1.", "%zu IN %s%s, %dX%d, %L2 %dS BY %1."),
        ("%-5.2f at %2d or %<PRIu64> is 5%%", "%-5.2f AT %2d OR %<PRIu64> IS 5%%"),
        ("See https://a.b/c?d=e#f, or a+b@c-d.org!", "SEE https://a.b/c?d=e#f, OR a+b@c-d.org!"),
        ("Pay ${price}00 or 5{x}, {h}:{m}", "PAY ${price}00 OR 5{x}, {h}:{m}"),
        ("In 10 days {when}", "IN 10 DAYS {when}"),  # a number that is the line's own
        ('<a id=1 title="a > b">x</a> <b id=">y</b>', '<a id=1 title="a > b">X</a> <b id=">Y</b>'),
        ("(https://a.b/c_(d)), x http://e.f/(g", "(https://a.b/c_(d)), X http://e.f/(G"),
        ("x <!-- a > b --> y <?z?> <1>w</1>", "X <!-- a > b --> Y <?z?> <1>W</1>"),
        ("AT&amp;T <b>&lt;x&gt;</b> &#8211; &my; y", "AT&amp;T <b>&lt;X&gt;</b> – &my; Y"),
        ("a & b; c &amp d", "A & B; C &AMP D"),
        ("{n, plural, one {# {x}} other {b}} c", "{n, plural, one {# {x}} other {b}} C"),
        (
            "a < b, c > d, 100% sure, 5 %, 50% discount, %20 indirim",
            "A < B, C > D, 100% SURE, 5 %, 50% DISCOUNT, %20 INDIRIM",
        ),
    ],
)
def test_markup_is_restored_in_place(line: str, expected: str) -> None:
    assert translated(line) == expected


@pytest.mark.parametrize(
    ("line", "order", "expected"),
    [
        ("<b>x</b> y <i>z</i>", [2, 1, 0], "<i>Z</i> Y <b>X</b>"),
        ("<b>x y</b> z", [2, 1, 0], "Z <b>Y X</b>"),
        ("x <br/> y z", [0, 2, 1], "X Z <br/> Y"),
        ("<b>x <i>y</i></b> z", [1, 2, 0], "<b><i>Y</i> Z X</b>"),  # a word inside is forgiven
        ("he <b>was not</b> {x} here", [0, 3, 1, 2, 4], "HE {x} <b>WAS NOT</b> HERE"),
    ],
)
def test_markup_follows_its_words(line: str, order: list[int], expected: str) -> None:
    assert translated(line, order) == expected


def test_lost_and_repeated_placeholders() -> None:
    source = extract_markup("see {a} and <b>that</b> there", str.strip, NUMBERS)
    assert source.text == "see 10 and that there"
    # The number is lost, and no word comes from "that".
    unplaced: list[str] = []
    assert restore_markup(source, "SIEHE UND DA", [(0, 0), (2, 1), (4, 2)], unplaced) == (
        "SIEHE {a} UND <b></b> DA"
    )
    assert unplaced == ["{a}", "<b>"]
    # The number is there twice: the aligned one counts.
    assert restore_markup(source, "10 UND 10, das", [(0, 0), (2, 1), (1, 2), (3, 3)], []) == (
        "UND {a}, <b>das</b>"
    )
    assert restore_markup(source, "", [], []) == "{a} <b></b>"


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("the <b>bag</b> that I saw", "die Tasche, die ich sah", "die <b>Tasche</b>, die ich sah"),
        ("he <q>came</q> in", "er »kam« rein", "er »<q>kam</q>« rein"),
        ("he <q>“came!”</q> in", "er „kam!“ rein", "er <q>„kam!“</q> rein"),
        ("<p>Come</p>", "Komm!", "<p>Komm!</p>"),
        ("on a bench<x/>, he sleeps", "auf einer Bank schläft er", "auf einer Bank<x/> schläft er"),
    ],
)
def test_punctuation_keeps_its_side_of_a_tag(line: str, translation: str, expected: str) -> None:
    source = extract_markup(line, str.strip, NUMBERS)
    links = [(i, i) for i in range(len(translation.split()))]
    assert restore_markup(source, translation, links, []) == expected


@pytest.mark.parametrize("space", ["\xa0", "\u202f", "\u3000", "&nbsp;"])
def test_no_break_spaces_stay_within_text_and_are_plain_beside_tags(space: str) -> None:
    line = "~<b>one~two</b>~<i>x</i> \t {p}~€ three~ ".replace("~", space)
    character = space.replace("&nbsp;", "\xa0")
    assert extract_markup(line, str.strip, NUMBERS).text == f"one{character}two x 10 € three"
    assert translated(line.replace(f"one{space}", "one ")) == "<b>ONE TWO</b> <i>X</i> {p} € THREE"


def test_normalised_text_and_untouched_markup() -> None:
    normalize = Normalizer(DataConfig(src_lang="en", tgt_lang="de", normalization="standard")).src
    source = extract_markup("“So” — <a t='“'>so</a>", normalize, NUMBERS)
    assert source.text == '"So" - so'
    links = [(i, i) for i in range(3)]
    assert restore_markup(source, source.text, links, []) == "\"So\" - <a t='“'>so</a>"
    for dash in ("—", "&mdash;"):
        assert extract_markup(f"a{dash}b <b>c</b>", normalize, NUMBERS).text == normalize("a—b c")


TREES = st.recursive(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("ijk"), inner).map(lambda t: f"<{t[0]}>{t[1]}</{t[0]}>"),
        st.lists(inner, min_size=2, max_size=3).map(" ".join),
        inner.map(lambda text: f"{text} <br/>"),
        inner.map(lambda text: f"{{v}} {text}"),
    ),
    max_leaves=8,
)


def _nested(text: str) -> bool:
    around = []
    for close, name in re.findall(r"<(/?)([ijk])>", text):
        if not close:
            around.append(name)
        elif not around or around.pop() != name:
            return False
    return not around


@given(TREES, st.data())
def test_markup_is_complete_and_nested_for_any_alignment(line: str, data: st.DataObject) -> None:
    source = extract_markup(line, str.strip, NUMBERS)
    count = len(source.text.split())
    words = [f"W{i}" for i in range(data.draw(st.integers(0, 6)))]
    word = st.integers(0, count - 1)
    links = [(data.draw(word), t) for t in range(len(words)) if data.draw(st.booleans())]
    found = restore_markup(source, " ".join(words), links, [])
    markup = r"<[^<>]*>|\{v\}"
    assert sorted(re.findall(markup, found)) == sorted(re.findall(markup, line))
    assert re.sub(markup, " ", found).split() == words
    assert _nested(found)


class Recorder(Capitals):
    """Turns the order of words round, too; keeps the lines of each call and its ``align``."""

    def __init__(self) -> None:
        super().__init__(reverse=True)
        self.calls: list[tuple[list[str], bool]] = []

    def translate_nbest(
        self, lines: Sequence[str], nbest: int, *, align: bool = False
    ) -> list[list[Translation]]:
        self.calls.append((list(lines), align))
        return super().translate_nbest(lines, nbest, align=align)


def test_a_tag_is_no_markup() -> None:
    inner = Recorder()
    inner.split_tag = lambda line: split_tag(line, ["<2de>", "<b>"])
    found = MarkupTranslator(inner).translate_nbest(["<b> x", "<b> <i>x</i> y", "<b> {a}"], 1)
    assert [best[0].text for best in found[::2]] == ["X <B>", "{a}"]  # which has no text
    assert inner.calls == [(["<b> x"], False), (["<b> x y"], True)]


def test_only_lines_with_markup_are_aligned_and_order_is_kept() -> None:
    inner = Recorder()
    lines = ["x y", "x <b>y</b>", "", "{a} <br/> 5", "x {n}"]
    known = {"77": [1]}  # the vocabulary has it as one piece
    inner.tokenizer.encode = lambda text: known.get(text, [1, 2])
    found = MarkupTranslator(inner).translate_nbest(lines, 2)
    expected = ["Y X", "<b>Y</b> X", "", "{a} <br/> 5", "{n} X"]
    assert [{t.text for t in best} for best in found] == [{text} for text in expected]
    assert list(map(len, found)) == [2, 2, 2, 1, 2]  # the fourth has no letters: as it is
    assert inner.calls == [(["x y", ""], False), (["x y", "x 77"], True)]
    assert found[1][0].alignment is None


def test_words_are_those_after_sentencepiece_s_normalization(tmp_path: Path) -> None:
    """Otherwise the alignment, which is between words that the model reads, is off by one."""
    inner = Recorder()
    with options_of_others(normalization_rule_name="nmt_nfkc"):
        inner.tokenizer = small_tokenizer(tmp_path / "model")
    MarkupTranslator(inner).translate_nbest(["it´s a\u200bb <b>c</b>"], 1)
    ((line,), _) = inner.calls[-1]
    ids = inner.tokenizer.encode(line)
    assert len(line.split()) == 5
    assert source_word_ids(inner.tokenizer, ids)[-1] == 4
