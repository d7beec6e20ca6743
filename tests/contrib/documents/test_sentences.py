"""Sentences are translated one by one; a line stays one line."""

from collections.abc import Sequence

from transformer_mt.contrib.documents.sentences import SentenceTranslator
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.tags import split_tag
from transformer_mt.protocols import Translation


class Brackets:
    """Puts each line in brackets; the n-th best translation has n of them."""

    def __init__(self, normalizer: Normalizer):
        self._normalizer = normalizer

    def split_tag(self, line: str) -> tuple[str, str]:
        return split_tag(line, self._normalizer.tags)

    def languages(self, tag: str) -> tuple[str, str]:
        normalizer = self._normalizer.of_tag(tag)
        return normalizer.src_lang, normalizer.tgt_lang

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        def found(line: str) -> list[Translation]:
            if not line.strip():
                return [Translation("", 0.0, 0)]
            return [
                Translation("[" * n + line + "]" * n, -n, len(line)) for n in range(1, 1 + nbest)
            ]

        return [found(line) for line in lines]


def brackets(src_lang: str = "en", tgt_lang: str = "de") -> SentenceTranslator:
    tags = {"<2ja>": ("en", "ja"), "<law>": ("en", "de")}
    inner = Brackets(Normalizer("none", src_lang, tgt_lang, tags))
    return SentenceTranslator(inner)


LINES = {
    "Dr. Smith paid $3.50. He left at 5 p.m. on Jan. 3rd!": (
        "[Dr. Smith paid $3.50.] [He left at 5 p.m. on Jan. 3rd!]"
    ),
    "  Two   spaces.  And at  the end, e.g. ": "[Two   spaces.] [And at  the end, e.g.]",
    "": "",
    # Each sentence gets the tag of its line, whose language is that of the output.
    "<law> One. Two.": "[<law> One.] [<law> Two.]",
    "<2ja> One. Two.": "[<2ja> One.][<2ja> Two.]",
    # sentencex itself panics at these.
    "Plan B\xa0. Next one.": "[Plan B\xa0.] [Next one.]",
    "X\u2009. Y\u3000.": "[X\u2009. Y\u3000.]",
    "A page\u2028of one.\rAnother. \x0b Yes.": "[A page\u2028of one.] [Another.] [Yes.]",
    "See http://a.b/c?q=Now.Then there. And": "[See http://a.b/c?q=Now.Then there.] [And]",
    # Elements stay whole, and closing tags belong to the sentence before them.
    "<b>One two.</b> Three <i>four.</i> <u>Five six.": (
        "[<b>One two.</b>] [Three <i>four.</i>] [<u>Five six.]"
    ),
    "<b>Read this. And that. </b>Then <i>go</i>. No.": (
        "[<b>Read this. And that. </b>] [Then <i>go</i>.] [No.]"
    ),
    "One.<br>Two <b>xs</b>. </i> Three": "[One.<br>] [Two <b>xs</b>. </i>] [Three]",
    "See http://a.b/c.d?e=f. Then {name} came.": "[See http://a.b/c.d?e=f.] [Then {name} came.]",
}


def test_each_line_gives_one_line() -> None:
    found = brackets().translate_nbest(list(LINES), 1)
    assert [best.text for (best,) in found] == list(LINES.values())


def test_scores_and_tokens_are_sums_and_only_single_sentences_have_n_best() -> None:
    both, single, blank = brackets().translate_nbest(["One. Two three.", "Four.", ""], 3)
    assert both == [Translation("[One.] [Two three.]", -2, 14)]
    assert [t.text for t in single] == ["[Four.]", "[[Four.]]", "[[[Four.]]]"]
    assert blank == [Translation("", 0.0, 0)]
    assert brackets().translate_nbest([], 1) == []


def test_languages() -> None:
    german = "Das ist z. B. ein Satz. Am 3. Oktober kam Dr. Müller."
    for code in ("de", "de_AT", "deu"):
        ((found,),) = brackets(code).translate_nbest([german], 1)
        assert found.text == "[Das ist z. B. ein Satz.] [Am 3. Oktober kam Dr. Müller.]"
    for code in ("ja", "zh_Hans", "yue"):
        ((found,),) = brackets("zh", code).translate_nbest(["你好。我是人。"], 1)
        assert found.text == "[你好。][我是人。]"
