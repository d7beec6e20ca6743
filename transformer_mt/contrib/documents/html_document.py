"""HTML pages: which of their text is translated, and in what units.

The tokens are those of Python's own parser, the one that reports where each begins in the source:
html5lib, lxml and selectolax build a tree and would rewrite the whole page.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

from transformer_mt import InputError
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import MarkupDocument, Piece, Token
from transformer_mt.contrib.documents.markup import EMPTY_ELEMENTS

log = logging.getLogger(__name__)

_TRANSLATED_ATTRIBUTES = {"alt", "title", "placeholder", "aria-label"}
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|math|nobr"
    "|q|rb|rp|rt|ruby|s|samp|small|span|strike|strong|sub|sup|svg|time|tt|u|var|wbr"
)
"""Elements inside a sentence. Any other one, ``br`` too, ends a unit."""
_KEPT = re.compile(
    "code|iframe|kbd|math|noembed|noframes|object|pre|samp|script|style|svg|textarea|tt|var|xmp"
)
"""Elements whose content is not translated."""
_KEPT_CLASSES = {"notranslate", "sig", "code-header"}
"""Google's for ``translate="no"``; Sphinx's and rustdoc's for signatures of functions."""
_SEPARATOR = re.compile(r"\s*[|¦·•]+\s*")
"""Text between the links of a menu; it ends a unit."""
_MAX_PIECES = 160
"""Length of a unit; placeholders are numbers of two digits, so that a line can have 90 of them."""
_ATTRIBUTE = re.compile(r"""([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")


class HtmlDocument(MarkupDocument):
    """An HTML page."""

    def parse(self, text: str, src_lang: str, tgt_lang: str) -> None:
        """Cuts an HTML page into parts and units.

        The content of ``<script>``, ``<style>``, ``<pre>``, ``<code>`` and the like, and of
        elements with ``translate="no"``, the class ``notranslate`` or another language than
        ``src_lang``, is not translated. The attribute ``lang`` of ``<html>``, where there is one,
        becomes ``tgt_lang``.
        """
        pieces = list[Piece]()
        elements = [("", "")]  # name and kind (below) of each open element
        num_open = Counter[str]()
        for token in _tokens(text):
            kind = elements[-1][1]  # of its element: "" if translated, "block" or a kind of piece
            if token.kind == "closing" and num_open[token.name]:
                while True:
                    name, kind = elements.pop()
                    num_open[name] -= 1
                    if name == token.name:
                        break
            elif token.kind in ("opening", "empty"):
                kind = _kind(token, elements[-1][1], src_lang)
                if token.kind == "opening":
                    elements.append((token.name, kind))
                    num_open[token.name] += 1

            start = len(self.parts)
            if token.kind == "text" and not kind:
                is_separator = _SEPARATOR.fullmatch(unescape(token.raw))
                if is_separator or len(pieces) >= _MAX_PIECES:
                    self.add_unit(pieces)
                    pieces = []
                piece = self.add_text(token.raw)
                pieces += [] if is_separator else [piece]
                continue
            if token.kind in ("opening", "empty") and not kind:
                self._add_start_tag(token, tgt_lang)
            else:
                self.parts.append(token.raw)
            if kind == "block" or (not kind and token.name and not _INLINE.fullmatch(token.name)):
                self.add_unit(pieces)
                pieces = []
                continue
            if not kind:
                kind = token.kind if token.kind in ("opening", "closing") else "alone"
            elif pieces and pieces[-1].kind == kind and pieces[-1].end == start:
                start = pieces.pop().start
            pieces.append(Piece(kind, start, len(self.parts), token.name))
            if kind == "closing":
                _join_note(pieces, self.parts)
        self.add_unit(pieces)

    def _add_start_tag(self, tag: Token, tgt_lang: str) -> None:
        """Adds the parts of a start tag, and units for attributes that people read."""
        end = 0
        for match in _ATTRIBUTE.finditer(tag.raw, len(tag.name) + 1):
            name, value = match[1].lower(), match.lastindex or 1
            if name in _TRANSLATED_ATTRIBUTES and value in (2, 3):  # in quotes
                self.parts.append(tag.raw[end : match.start(value)])
                self.add_unit([self.add_text(match[value])], attribute=True)
            elif tag.name == "html" and name in ("lang", "xml:lang") and value > 1:
                self.parts += [tag.raw[end : match.start(value)], tgt_lang.replace("_", "-")]
            else:
                continue
            end = match.end(value)
        self.parts.append(tag.raw[end:])


def _join_note(pieces: list[Piece], parts: Sequence[str]) -> None:
    """Makes the last element one piece if it has no words: an anchor, a footnote, an exponent."""
    is_word = str.isalpha if pieces[-1].name == "sup" else str.strip  # any but a space
    for i in reversed(range(len(pieces))):
        text = unescape(parts[pieces[i].start]) if pieces[i].kind == "text" else ""
        if pieces[i].kind == "verbatim" or any(map(is_word, text)):
            return
        if pieces[i].kind == "opening" and pieces[i].name == pieces[-1].name:
            pieces[i:] = [Piece("alone", pieces[i].start, pieces[-1].end)]
            return


def _kind(tag: Token, parent: str, src_lang: str) -> str:
    """How an element is treated: empty if it is translated; ``block`` if it is not.

    Inside a sentence it is ``verbatim`` or ``alone`` instead, as a ``Piece`` is.
    """
    attributes, translate = tag.attributes, tag.attributes.get("translate", "").lower()
    if parent == "block":
        return "" if translate == "yes" and not _KEPT.fullmatch(tag.name) else "block"
    if parent:
        return parent
    lang = attributes.get("lang") or attributes.get("xml:lang") or src_lang
    foreign = tag.name != "html" and not may_be_same_language(lang, src_lang)
    hidden = translate == "no" or not _KEPT_CLASSES.isdisjoint(attributes.get("class", "").split())
    if not (_KEPT.fullmatch(tag.name) or foreign or hidden):
        return ""
    if tag.name == "svg":
        return "alone"
    return "verbatim" if _INLINE.fullmatch(tag.name) else "block"


def _tokens(text: str) -> Iterator[Token]:
    """The tokens of a page; text that the parser hands out in pieces is one token."""
    parser = _Parser()
    try:
        parser.feed(text + "<!---->")  # closes what is open at the end
    except AssertionError as error:  # of a declaration
        raise InputError(f"line {parser.getpos()[0]}: {error}") from None
    if parser.rawdata:  # it waits for the end of something, such as a script
        parser.add("other")
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    starts = [lines[line - 1] + column for line, column in parser.positions]
    if starts[-1] < len(text):  # the last token took in the added comment
        message = "line %d: this tag, comment or script has no end: the rest is not translated"
        log.warning(message, parser.positions[-1][0])
    for (start, end), token in zip(pairwise([*starts, len(text)]), parser.tokens, strict=True):
        if start < len(text):
            yield token._replace(raw=text[start : min(end, len(text))])


class _Parser(HTMLParser):
    """Collects tokens, and where they start."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[Token] = []
        self.positions: list[tuple[int, int]] = []
        """Line, from 1, and column of each token."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.add("empty" if EMPTY_ELEMENTS.fullmatch(tag) else "opening", tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.add("empty", tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self.add("closing", tag)

    def handle_data(self, data: str) -> None:
        if not (self.tokens and self.tokens[-1].kind == "text"):
            self.add("text")

    def handle_comment(self, data: str) -> None:
        self.add("other")

    def handle_decl(self, decl: str) -> None:
        self.add("other")

    handle_pi = unknown_decl = handle_comment

    def add(self, kind: str, name: str = "", attrs: Sequence[tuple[str, str | None]] = ()) -> None:
        """Adds a token that starts where the parser is."""
        self.tokens.append(Token(kind, name, {key: value or "" for key, value in attrs}, ""))
        self.positions.append(self.getpos())
