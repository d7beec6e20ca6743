"""HTML pages: which of their text is translated, and in what units."""

import re
from html import unescape

from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import MarkupDocument, Piece
from transformer_mt.contrib.documents.markup import EMPTY_ELEMENTS
from transformer_mt.contrib.documents.tokens import ATTRIBUTE, Token, tokenize

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
_SEPARATOR = re.compile(r"\s*[|¦·•]+\s*")
"""Text between the links of a menu; it ends a unit."""


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
        open_elements = list[str]()
        kept, depth = "", 0  # how the element that is kept is treated, and its number of ancestors
        for token in tokenize(text):
            name, kind, start = token.name.lower(), token.kind, len(self.parts)
            if kind == "opening" and EMPTY_ELEMENTS.fullmatch(name):
                kind = "empty"
            if kind in ("opening", "empty") and not kept:
                kept, depth = _kept(name, token.attributes, src_lang), len(open_elements)
            if kind == "opening":
                open_elements.append(name)
            elif kind == "closing" and name in open_elements:
                while open_elements.pop() != name:
                    continue
            if kind == "text" and not kept and not _SEPARATOR.fullmatch(unescape(token.raw)):
                pieces.append(self.add_text(token.raw))
                continue
            if kind in ("opening", "empty") and not kept:
                self._add_start_tag(token, tgt_lang)
            else:
                self.parts.append(token.raw)
            is_block = kind == "text" or (name and not _INLINE.fullmatch(name))
            if kept == "block" or (is_block and not kept):
                self.add_unit(pieces)
                pieces = []
            elif kept and pieces and pieces[-1].kind == kept and pieces[-1].end == start:
                pieces[-1] = pieces[-1]._replace(end=len(self.parts))
            else:
                tag = kind if kind in ("opening", "closing") else "alone"
                pieces.append(Piece(kept or tag, start, len(self.parts), name))
            if len(open_elements) <= depth:
                kept = ""
        self.add_unit(pieces)

    def _add_start_tag(self, tag: Token, tgt_lang: str) -> None:
        """Adds the parts of a start tag, and units for attributes that people read."""
        end = 0
        for match in ATTRIBUTE.finditer(tag.raw):
            name, value = match[1].lower(), match.lastindex or 1
            if name in _TRANSLATED_ATTRIBUTES:
                self.parts.append(tag.raw[end : match.start(value)])
                self.add_unit([self.add_text(match[value])], quote='"' if value == 4 else "")
            elif tag.name.lower() == "html" and name in ("lang", "xml:lang"):
                self.parts += [tag.raw[end : match.start(value)], tgt_lang]
            else:
                continue
            end = match.end(value)
        self.parts.append(tag.raw[end:])


def _kept(name: str, attributes: dict[str, str], src_lang: str) -> str:
    """How an element that is not translated is treated; empty for others.

    Inside a sentence it is ``verbatim`` or ``alone``, as a ``Piece`` is, otherwise ``block``.
    """
    given = {key.lower(): value for key, value in attributes.items()}
    foreign = not may_be_same_language(given.get("lang") or src_lang, src_lang)
    hidden = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
    if not (_KEPT.fullmatch(name) or hidden or (foreign and name != "html")):
        return ""
    if name == "svg":
        return "alone"
    return "verbatim" if _INLINE.fullmatch(name) else "block"
