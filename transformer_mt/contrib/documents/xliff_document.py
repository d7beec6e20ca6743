"""XLIFF 1.2 and 2: which sources are translated, and where their targets go."""

import re
from collections.abc import Iterator, Sequence
from html import unescape
from xml.parsers import expat

from transformer_mt import InputError
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import MarkupDocument, Piece, Token

_STATES = {"trans-unit": "needs-review-translation", "segment": "translated"}
"""Parents of source and target, in XLIFF 1.2 and 2, and the state of a new translation."""
_UNTRANSLATED = re.compile(r"""\sstate\s*=\s*["'](?:initial|new|needs-translation)["']""")
_LANGUAGES = {"file": ("source-language", "target-language"), "xliff": ("srcLang", "trgLang")}
_OPAQUE = {"bpt", "ept", "it", "ph"}
"""Elements of XLIFF 1.2 whose content is code."""
_BEGINNINGS, _ENDS = {"bpt", "bx", "sc", "sm"}, {"ept", "ex", "ec", "em"}
"""Elements that stand for one of a pair of tags."""
_TOKEN = re.compile(
    r"""<!--.*?-->|<\?.*?\?>|(?P<text>(?:[^<]+|<!\[CDATA\[.*?\]\]>)+)"""
    r"""|<(?P<closing>/?)(?P<name>[^\s/>]+)(?:[^>"']|"[^"]*"|'[^']*')*?(?P<empty>/?)>""",
    re.DOTALL,
)
"""A token of well-formed XML."""
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_DONE = "done"
"""Kind of a token of a target that stays as it is."""


class XliffDocument(MarkupDocument):
    """An XLIFF file."""

    def parse(self, text: str, src_lang: str, tgt_lang: str) -> None:
        """Cuts an XLIFF file into parts and units: the sources that have no translation yet.

        A target with content is kept, unless its state is ``initial``, ``new`` or
        ``needs-translation``; so is what has ``translate="no"``. New targets have the state
        ``needs-review-translation`` in XLIFF 1.2 and ``translated`` in XLIFF 2.
        """
        unit = list[Token]()
        translated = [True]  # whether the document is, and each open element
        for token in _tokens(text):
            name = _local_name(token)
            if token.kind in ("opening", "empty"):
                if len(translated) == 1 and name != "xliff":
                    raise InputError(f"not XLIFF: the root element is <{token.name}>")
                if name in _LANGUAGES:
                    token = _with_languages(token, src_lang, tgt_lang)
            if token.kind == "opening":
                setting = token.attributes.get("translate", "")
                translated.append({"yes": True, "no": False}.get(setting, translated[-1]))
            if unit or (token.kind == "opening" and name in _STATES):
                unit.append(token)
            else:
                self.parts.append(token.raw)
            if token.kind == "closing":
                is_translated = translated.pop()
                if name in _STATES:
                    self._add_translation_unit(unit, is_translated)
                    unit = []

    def _add_translation_unit(self, unit: list[Token], is_translated: bool) -> None:
        """Adds the parts of a translation unit, with a new target if it needs one."""
        children, depth, start = {}, 0, 0  # the range of tokens of each child
        for i, token in enumerate(unit):
            depth -= token.kind == "closing"
            if depth == 1 and token.kind in ("opening", "empty"):
                start = i
            if depth == 1 and token.kind in ("closing", "empty"):
                children[_local_name(unit[start])] = start, i + 1
            depth += token.kind == "opening"
        source = children.get("source", (0, 1))  # without one, no content
        first, last = children.get("seg-source", source)  # its segments are the target's too
        place = max(source[1], last)
        start, end = children.get("target", (place, place))
        before, target, after = unit[:start], unit[start:end], unit[end:]
        # XLIFF 1.2 has the state in the target, XLIFF 2 in the segment.
        level = _local_name(unit[0])
        stated = before[:1] if level == "segment" else target[:1]
        content = unit[first + 1 : last - 1]
        if not any(_UNTRANSLATED.search(token.raw) for token in stated):
            content = _without_translated(content, target[1:-1])
        if not (is_translated and any(token.kind != _DONE for token in content)):
            self.parts += [token.raw for token in unit]
            return
        name = unit[source[0]].name.replace("source", "target")
        opening = re.sub(r"\s*/>$", ">", target[0].raw) if target else f"<{name}>"
        if level == "segment":
            before[0] = before[0]._replace(raw=_with_state(before[0].raw, _STATES[level]))
        else:
            opening = _with_state(opening, _STATES[level])
        self.parts += [token.raw for token in before]
        added = len(self.parts)
        if not target and not unit[first - 1].raw.strip():
            self.parts.append(unit[first - 1].raw)  # the same indentation
        self.parts.append(opening)
        self._add_content(content)
        self.parts.append(f"</{name}>")
        self.added.update(range(added, len(self.parts)))
        self.parts += [token.raw for token in after]

    def _add_content(self, tokens: Sequence[Token]) -> None:
        """Adds the content of a source, to be translated."""
        pieces, depth, segments = list[Piece](), 0, list[bool]()  # whether each open mrk is one
        for token in tokens:
            start, name = len(self.parts), _local_name(token)
            if token.kind == "text" and not depth:
                pieces.append(self.add_text(token.raw))
                continue
            self.parts.append(token.raw)
            if token.kind == _DONE:
                self.add_unit(pieces, nested=True)
                pieces = []
                continue
            if depth:  # inside an element whose content is not translated
                depth += {"opening": 1, "closing": -1}.get(token.kind, 0)
                pieces[-1] = pieces[-1]._replace(end=start + 1)
                continue
            kind, get = token.kind, token.attributes.get
            is_protected = get("mtype") == "protected" or get("translate") == "no"
            if name == "mrk" and kind in ("opening", "closing") and not is_protected:
                is_segment = get("mtype") == "seg" if kind == "opening" else segments.pop()
                segments += [is_segment] if kind == "opening" else []
                if is_segment:  # a unit of its own
                    self.add_unit(pieces, nested=True)
                    pieces = []
                    continue
            if kind == "opening" and (name in _OPAQUE or is_protected):
                depth, kind = 1, "verbatim" if is_protected else "empty"
            if kind in ("empty", "other"):
                kind = "opening" if name in _BEGINNINGS else "closing" if name in _ENDS else "alone"
                name = f"#{get('rid') or get('startRef') or get('id')}"
            pieces.append(Piece(kind, start, start + 1, name))
        self.add_unit(pieces, nested=True)


def _without_translated(source: list[Token], target: list[Token]) -> list[Token]:
    """The content of a new target: that of the target, if there is any, otherwise the source.

    Tokens of the target get the kind ``_DONE``; its empty segments are filled from the source.
    """
    if not _has_content(target):
        return source
    segments = {mid: tokens for mid, tokens in _segments(source) if mid and _has_content(tokens)}
    content = list[Token]()
    for mid, tokens in _segments(target):
        is_done = mid not in segments or _has_content(tokens)
        content += [token._replace(kind=_DONE) for token in tokens] if is_done else segments[mid]
    return content


def _segments(content: Sequence[Token]) -> Iterator[tuple[str, list[Token]]]:
    """The tokens of each segment (``<mrk mtype="seg">``) with its ``mid``; "" with other tokens."""
    tokens, mid, depth = list[Token](), "", 0
    for token in content:
        if not mid and token.kind != "closing" and token.attributes.get("mtype") == "seg":
            yield "", tokens
            tokens, mid = [], token.attributes.get("mid", "")
        tokens.append(token)
        if mid:
            depth += {"opening": 1, "closing": -1}.get(token.kind, 0)
        if mid and not depth:
            yield mid, tokens
            tokens, mid = [], ""
    yield "", tokens


def _has_content(target: Sequence[Token]) -> bool:
    return any(token.raw.strip() for token in target if _local_name(token) != "mrk")


def _with_state(tag: str, state: str) -> str:
    """A start tag with a state, unless it has one that is not of untranslated text."""
    tag = _UNTRANSLATED.sub("", tag)
    return tag if re.search(r"\sstate\s*=", tag) else _with_attribute(tag, "state", state)


def _with_attribute(tag: str, name: str, value: str) -> str:
    return re.sub(r"\s*/?>$", lambda end: f' {name}="{value}"{end[0]}', tag)


def _with_languages(tag: Token, src_lang: str, tgt_lang: str) -> Token:
    """A start tag with the target language, if it is one that has the source language."""
    source, target = _LANGUAGES[_local_name(tag)]
    for name, lang in ((source, src_lang), (target, tgt_lang)):
        given = tag.attributes.get(name, lang)
        if not may_be_same_language(given, lang):
            model = f"the model translates {src_lang} to {tgt_lang}"
            raise InputError(f"{name} is {given}, but {model}")
    if source in tag.attributes and target not in tag.attributes:
        return tag._replace(raw=_with_attribute(tag.raw, target, tgt_lang.replace("_", "-")))
    return tag


def _local_name(tag: Token) -> str:
    return tag.name.rpartition(":")[2]


def _tokens(text: str) -> Iterator[Token]:
    """The tokens of an XML document. A DTD is refused, so that there are no entities to expand."""
    parser = expat.ParserCreate("utf-8")

    def refuse_dtd(*_: object) -> None:
        raise InputError(f"line {parser.CurrentLineNumber}: has a DTD: remove it")

    parser.StartDoctypeDeclHandler = refuse_dtd
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        where = f"line {error.lineno}, column {error.offset + 1}"
        raise InputError(f"{where}: not well-formed XML: {reason}") from None
    for match in _TOKEN.finditer(text):
        if (name := match["name"]) is None:
            yield Token("text" if match["text"] else "other", "", {}, match[0])
        else:
            kind = "closing" if match["closing"] else "empty" if match["empty"] else "opening"
            attributes = {key: unescape(value[1:-1]) for key, value in _ATTRIBUTE.findall(match[0])}
            yield Token(kind, name, attributes, match[0])
