"""A document with markup, cut into parts: those that are translated, others stay byte for byte.

The text between two boundaries, such as the tags of a paragraph, is a unit, translated as one line.
Its inline elements become short tags in this line, ``<xb>the <xc/> text</xb>``, and what must not
be translated inside a sentence, such as ``<code>``, becomes a placeholder, ``{xd}``. Each is named
after the part where the element starts. ``MarkupTranslator`` places them in the translation.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape, unescape
from typing import ClassVar, NamedTuple, TypeVar

from transformer_mt import InputError, Translator
from transformer_mt.contrib.documents.markup import MarkupTranslator
from transformer_mt.contrib.documents.tag_placement import WORD
from transformer_mt.protocols import TranslatedDocument

T = TypeVar("T")

_LETTER = re.compile(r"[^\W\d_]")
_CODE = re.compile(r"(</?x[a-j]+/?>|\{x[a-j]+\})")
_LETTERS = str.maketrans("0123456789", "abcdefghij")
"""Names of codes have no digits: models copy these, and placement inserts some."""
_SPACE_REFERENCE = re.compile("&(?:nbsp|ensp|emsp|thinsp|#13|#160|#xa0);", re.IGNORECASE)
UNPLACED = "element(s) could not be placed by word alignment"
FAILED = "text(s) have no usable translation and were left as they are"
_MAX_LISTED = 10
_BYTE_ORDER_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_DECLARED = re.compile(
    rb"""(?:<meta\b[^>]*[\s;"']charset|<\?xml\b[^>]*\sencoding)\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
_ALIASES = {"iso-8859-1": "windows-1252", "gb2312": "gbk", "shift_jis": "cp932", "utf-16": "utf-8"}
_ALIASES |= {"euc-kr": "cp949", "us-ascii": "windows-1252"}
"""Encodings that are declared, and what they mean, as the HTML standard says."""


class Piece(NamedTuple):
    """A piece of a unit: text, or inline markup."""

    kind: str
    """``text``; ``opening`` or ``closing``; ``verbatim`` for markup that stands for a word, with
    its content; ``alone`` for other markup."""
    start: int
    """Index of its first part."""
    end: int
    """Index after its last part."""
    name: str = ""
    """What the opening and the closing piece of a pair have in common."""


class Unit(NamedTuple):
    """A text that is translated as one line."""

    line: str
    start: int
    """Index of the first part that the translation replaces."""
    end: int
    """Index after the last one."""
    codes: dict[str, tuple[int, int]]
    """For each tag and placeholder in the line, its first part and the one after its last."""
    quote: str | None
    """Of the value of an attribute: the quotes that it lacks, or ""; otherwise None."""


class MarkupDocument(ABC):
    """The parts of a document, and the units among them: a ``Document`` with markup."""

    is_nested: ClassVar[bool] = False
    """Whether a text may be markup itself, such as escaped HTML in XLIFF."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        """Their concatenation is the document."""
        self.units: list[Unit] = []
        self._unplaced: list[str] = []

    @abstractmethod
    def parse(self, text: str, src_lang: str, tgt_lang: str) -> None:
        """Cuts a document into parts and units; raises ``InputError`` if it is damaged."""

    def wrap(self, translator: Translator) -> MarkupTranslator:
        """What keeps the tags of lines."""
        return MarkupTranslator(translator, self._unplaced)

    def read(self, content: bytes, src_lang: str, tgt_lang: str) -> list[str]:
        """The lines of the units."""
        text, self._encoding = decode(content)
        self.parse(text, src_lang, tgt_lang)
        return [unit.line for unit in self.units]

    def write(self, translations: Sequence[str]) -> TranslatedDocument:
        """The document in its encoding, with translations of its units."""
        text, failed = self.translated(translations)
        warnings = list_places(UNPLACED, self._unplaced, self.place)
        warnings += list_places(FAILED, failed, lambda unit: f"line {self.line_number(unit.start)}")
        number = len(self.units) - len(failed)
        content = text.encode(self._encoding, "xmlcharrefreplace")
        return TranslatedDocument(content, number, warnings)

    def add_text(self, raw: str) -> Piece:
        """Adds the parts of a text; the spaces at its ends are not of the piece."""
        plain = _SPACE_REFERENCE.sub(lambda match: " " * len(match[0]), raw)
        start = len(raw) - len(plain.lstrip())
        end = max(start, len(plain.rstrip()))
        self.parts += (raw[:start], raw[start:end], raw[end:])
        return Piece("text", len(self.parts) - 2, len(self.parts) - 1)

    def add_unit(self, pieces: Sequence[Piece], quote: str | None = None) -> None:
        """Adds the unit that consists of these pieces, unless it has nothing to translate.

        Markup around all of its text, such as a link that fills a list item, stays where it is.
        ``quote`` is of ``Unit``.
        """
        pairs = _pairs(pieces)
        words = [i for i in range(len(pieces)) if self._has_words(pieces, i)]
        if not words:
            return
        within = [*words, *(pairs[i] for i in range(words[0], words[-1]) if i in pairs)]
        first, last = min(within), max(within)
        line, codes = "", dict[str, tuple[int, int]]()
        for i, (kind, start, end, _) in enumerate(pieces[first : last + 1], first):
            if kind == "text":  # with the spaces around it
                text = unescape("".join(self.parts[start - 1 : end + 1]))
                line += text if self.is_nested else escape(text, quote=False)
                continue
            partner = pairs.get(i, -1)
            paired = first <= partner <= last
            number = pieces[min(i, partner)].start if paired else start
            name = "x" + str(number).translate(_LETTERS)
            if kind == "verbatim":
                code = f"{{{name}}}"
            elif not paired:
                code = f"<{name}/>"
            else:
                code = f"<{name}>" if i < partner else f"</{name}>"
            codes[code] = (start, end)
            line += code
        line = " ".join(WORD.findall(line.strip()))  # no-break spaces stay
        if _LETTER.search(_CODE.sub("", line)):
            self.units.append(Unit(line, pieces[first].start, pieces[last].end, codes, quote))

    def _has_words(self, pieces: Sequence[Piece], i: int) -> bool:
        """Whether a piece has words, or is punctuation that does not fill an element, as ¶ may."""
        kind, start, _, _ = pieces[i]
        text = unescape(self.parts[start]) if kind == "text" else ""
        fills = [piece.kind for piece in pieces[i - 1 : i + 2]] == ["opening", "text", "closing"]
        return kind == "verbatim" or bool(re.search(r"\w" if fills else r"\S", text))

    def translated(self, translations: Sequence[str]) -> tuple[str, list[Unit]]:
        """The document with a translation of the line of each unit.

        Also returns the units that are left as they are, because their translation is empty or
        lacks markup of the line.
        """
        parts, failed = [*self.parts], []
        for unit, translation in zip(self.units, translations, strict=True):
            codes, text, has_words = dict(unit.codes), "", False
            for piece in _CODE.split(translation):
                if piece in unit.codes:
                    start, end = codes.pop(piece, (0, 0))
                    text += "".join(parts[start:end])
                else:  # what the line has as entities is escaped, and perhaps nothing else
                    content = piece if self.is_nested else unescape(piece)
                    text += escape(content, quote=unit.quote is not None)
                    has_words |= bool(piece.strip())
            if codes or not has_words:
                failed.append(unit)
            else:
                quoted, rest = f"{unit.quote or ''}{text}{unit.quote or ''}", unit.start + 1
                parts[unit.start : unit.end] = [quoted, *[""] * (unit.end - rest)]
        return "".join(parts), failed

    def place(self, code: str) -> str:
        """What a tag or placeholder of a line stands for, and where: ``<a> in line 5``."""
        for unit in self.units:
            for name in _CODE.findall(code):
                if name in unit.codes:
                    part, _ = unit.codes[name]
                    tag = self.parts[part].split()[0].rstrip("/>")
                    return f"{tag}> in line {self.line_number(part)}"
        return code  # a placeholder of the document's own, such as {name}

    def line_number(self, part: int) -> int:
        """The line of the document in which a part starts, from 1."""
        return sum(raw.count("\n") for raw in self.parts[:part]) + 1


def decode(content: bytes) -> tuple[str, str]:
    """The text of a document, and its encoding.

    It is UTF-16 with a byte order mark, what the first 1,024 bytes declare, or UTF-8.

    Raises:
        InputError: The document is not in this encoding.
    """
    declared = _DECLARED.search(content[:1024])
    name = declared[1].decode().lower() if declared else "utf-8"
    encoding = _BYTE_ORDER_MARKS.get(content[:2]) or _ALIASES.get(name, name)
    try:
        return content.decode(encoding), encoding
    except (LookupError, UnicodeError) as error:
        advice = "declare another encoding, or convert it to UTF-8"
        raise InputError(f"cannot be read as {encoding}: {error}: {advice}") from None


def list_places(problem: str, found: Sequence[T], place: Callable[[T], str]) -> list[str]:
    """A warning with the first places of a problem, if there is any; to find one may be slow."""
    listed = ", ".join(place(one)[:80] for one in found[:_MAX_LISTED])
    more = ", …" if len(found) > _MAX_LISTED else ""
    return [f"{len(found):,} {problem}: {listed}{more}"] if found else []


def _pairs(pieces: Sequence[Piece]) -> dict[int, int]:
    """For the index of each opening or closing piece that has a partner, the partner's index."""
    pairs, opened = {}, defaultdict[str, list[int]](list)
    for i, piece in enumerate(pieces):
        if piece.kind == "opening":
            opened[piece.name].append(i)
        elif piece.kind == "closing" and opened[piece.name]:
            partner = opened[piece.name].pop()
            pairs[i], pairs[partner] = partner, i
    return pairs
