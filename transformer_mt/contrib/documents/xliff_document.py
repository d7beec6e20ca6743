"""XLIFF 1.2 and 2: which sources are translated, and where their targets go."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from xml.parsers import expat

from transformer_mt import InputError
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import MarkupDocument, Piece
from transformer_mt.contrib.documents.tokens import Token, tokenize

_STATES = {"trans-unit": "needs-review-translation", "segment": "translated"}
"""Parents of source and target, in XLIFF 1.2 and 2, and the state of a new translation."""
_UNTRANSLATED = {"initial", "new", "needs-translation"}
_LANGUAGES = {"file": ("source-language", "target-language"), "xliff": ("srcLang", "trgLang")}
_OPAQUE = {"bpt", "ept", "it", "ph"}
"""Elements of XLIFF 1.2 whose content is code."""
_HALVES = dict.fromkeys(("bpt", "bx", "sc", "sm"), "opening")
_HALVES |= dict.fromkeys(("ept", "ex", "ec", "em"), "closing")
"""Elements that stand for one of a pair of tags, and for which."""


class XliffDocument(MarkupDocument):
    """An XLIFF file."""

    is_nested = True

    def parse(self, text: str, src_lang: str, tgt_lang: str) -> None:
        """Cuts an XLIFF file into parts and units: the sources that have no translation yet.

        A target with text is kept, unless its state is ``initial``, ``new`` or
        ``needs-translation``; so is what has ``translate="no"``. New targets have the state
        ``needs-review-translation`` in XLIFF 1.2 and ``translated`` in XLIFF 2.

        Raises:
            InputError: The file is not well-formed XML, is not XLIFF, or is for other languages.
        """
        try:
            expat.ParserCreate("utf-8").Parse(text.encode(), True)
        except expat.ExpatError as error:
            raise InputError(f"not well-formed XML: {error}") from None
        tokens = [*tokenize(text)]
        ends, i = _ends(tokens), 0
        root = tokens[min(ends)]
        if _local_name(root) != "xliff":
            raise InputError(f"not XLIFF: the root element is <{root.name}>")
        while i < len(tokens):
            token, name, end = tokens[i], _local_name(tokens[i]), i + 1
            if i in ends and token.attributes.get("translate") == "no":
                end = ends[i]
                self._keep(tokens[i:end])
            elif i in ends and name in _STATES:
                end = ends[i]
                self._add_translation_unit(tokens[i:end])
            elif i in ends and name in _LANGUAGES:
                self.parts.append(_with_languages(token, src_lang, tgt_lang))
            else:
                self.parts.append(token.raw)
            i = end

    def _keep(self, tokens: Sequence[Token]) -> None:
        self.parts += [token.raw for token in tokens]

    def _add_translation_unit(self, unit: list[Token]) -> None:
        """Adds the parts of a translation unit, with a new target if it needs one.

        Segments (``<mrk mtype="seg">``) that have text in the target are kept in a new one.
        """
        children, after = dict[str, tuple[int, int]](), 1  # the range of tokens of each child
        for start, end in _ends(unit).items():
            if start >= after:
                children[_local_name(unit[start])] = start, end
                after = end
        source = children.get("source", (0, 0))
        first, last = children.get("seg-source", source)  # its segments are the target's too
        place = max(source[1], last)
        start, end = children.get("target", (place, place))
        # XLIFF 1.2 has the state in the target, XLIFF 2 in the segment.
        level = _local_name(unit[0])
        state = unit[0 if level == "segment" else start].attributes.get("state")
        given = [] if state in _UNTRANSLATED else unit[start + 1 : end - 1]
        done = {mid: tokens for mid, tokens in _segments(given) if _has_text(tokens)}
        segments = [*_segments(unit[first + 1 : last - 1])]
        to_do = [mid for mid, tokens in segments if mid not in done and _has_text(tokens)]
        if not to_do or (done and "" in (*to_do, *done)):  # or text that is not in segments
            self._keep(unit)
            return
        name = unit[source[0]].name.replace("source", "target")
        target = re.sub(r"\s*/>$", ">", unit[start].raw) if start < end else f"<{name}>"
        if level == "segment":
            unit[0] = unit[0]._replace(raw=_with_attribute(unit[0].raw, "state", _STATES[level]))
        else:
            target = _with_attribute(target, "state", _STATES[level])
        self._keep(unit[:start])
        self.parts.append(target)
        for mid, tokens in segments:
            if mid in done:
                self._keep(done[mid])
            else:
                self._add_content(tokens)
        self.parts.append(f"</{name}>")
        self._keep(unit[end:])

    def _add_content(self, tokens: Sequence[Token]) -> None:
        """Adds the content of a source or of a segment, on one line, to be translated as a unit."""
        pieces, ends, i = list[Piece](), _ends(tokens), 0
        while i < len(tokens):
            start, end, name = len(self.parts), i + 1, _local_name(tokens[i])
            kind, raw, get = tokens[i].kind, tokens[i].raw, tokens[i].attributes.get
            if kind in ("text", "cdata"):
                text = raw if kind == "text" else escape(raw[9:-3], quote=False)
                pieces.append(self.add_text(re.sub(r"\r?\n", " ", text)))
            else:
                if get("mtype") == "protected" or get("translate") == "no":
                    end, kind = ends[i], "verbatim"
                elif kind in ("empty", "other") or name in _OPAQUE:
                    end, kind = ends.get(i, end), _HALVES.get(name, "alone")
                    name = f"#{get('rid') or get('startRef') or get('id')}"
                self._keep(tokens[i:end])
                pieces.append(Piece(kind, start, len(self.parts), name))
            i = end
        self.add_unit(pieces)


def _ends(tokens: Sequence[Token]) -> dict[int, int]:
    """For the index of each start tag, the one after its element, in the order of the tags."""
    ends, opened = dict[int, int](), list[int]()
    for i, token in enumerate(tokens):
        if token.kind in ("opening", "empty"):
            ends[i] = i + 1
        if token.kind == "opening":
            opened.append(i)
        elif token.kind == "closing" and opened:
            ends[opened.pop()] = i + 1
    return ends


def _segments(content: Sequence[Token]) -> Iterator[tuple[str, Sequence[Token]]]:
    """The tokens of each segment, with its ``mid``, and of what is between, with ""."""
    after = 0
    for start, end in _ends(content).items():
        if content[start].attributes.get("mtype") == "seg":
            yield "", content[after:start]
            yield content[start].attributes.get("mid", ""), content[start:end]
            after = end
    yield "", content[after:]


def _has_text(tokens: Sequence[Token]) -> bool:
    return any(token.kind in ("text", "cdata") and token.raw.strip() for token in tokens)


def _with_attribute(tag: str, name: str, value: str) -> str:
    """A start tag with another value of an attribute."""
    tag = re.sub(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""", "", tag)
    return re.sub(r"\s*/?>$", lambda end: f' {name}="{value}"{end[0]}', tag)


def _with_languages(tag: Token, src_lang: str, tgt_lang: str) -> str:
    """A start tag with the target language, if it is one that has the source language."""
    source, target = _LANGUAGES[_local_name(tag)]
    for name, lang in ((source, src_lang), (target, tgt_lang)):
        given = tag.attributes.get(name, lang)
        if not may_be_same_language(given, lang):
            model = f"the model translates {src_lang} to {tgt_lang}"
            raise InputError(f"{name} is {given}, but {model}")
    if source in tag.attributes and target not in tag.attributes:
        return _with_attribute(tag.raw, target, tgt_lang)
    return tag.raw


def _local_name(tag: Token) -> str:
    return tag.name.rpartition(":")[2]
