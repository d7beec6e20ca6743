"""A document with markup, cut into parts: some are translated, all others stay byte for byte.

The text between two boundaries, such as the tags of a paragraph, is a unit, translated as one line.
Its inline elements become short tags in this line, ``<xb>the <xc/> text</xb>``, and what must not
be translated inside a sentence, such as ``<code>``, becomes a placeholder, ``{xd}``. Each is named
after the part where the element starts. ``MarkupTranslator`` places them in the translation.
"""

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape, unescape
from typing import NamedTuple, TypeVar

from transformer_mt import InputError
from transformer_mt.config import TranslateJob
from transformer_mt.contrib.documents.markup import Unplaced, is_malformed, is_usable
from transformer_mt.protocols import WORD, TranslatedDocument

T = TypeVar("T")

_LETTER_OR_DIGIT, _LETTER = re.compile(r"\w"), re.compile(r"[^\W\d_]")
_IDENTIFIER = re.compile(r"\S*\w(?:[._:]+\w|\(\))\S*")
"""One word that is a name in a program, or of a file, such as ``os.path``, ``max_len``, ``f()``."""
_CODE = re.compile(r"(</?x[a-j]+/?>|\{x[a-j]+\})")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_DIGITS, _LETTERS = "0123456789", "abcdefghij"  # models copy digits, and placement inserts some
_TEXT = re.compile(r"((?:\s|&nbsp;|&#160;)*)(.*?)((?:\s|&nbsp;|&#160;)*)", re.DOTALL)
"""The spaces before a text, the text, and the spaces after it."""
UNPLACED = "element(s) could not be placed by word alignment"
FAILED = "text(s) have no usable translation and were left as they are"
_MAX_LISTED = 10
"""Number of places that a warning names."""
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_ENCODING = re.compile(
    rb"""(?:<meta\b[^>]*[\s;"']charset|<\?xml\b[^>]*\sencoding)\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
"""The declaration of an encoding."""


class Token(NamedTuple):
    """A tag, the text between two tags, or anything else, such as a comment."""

    kind: str
    """``opening``, ``closing`` or ``empty`` for tags; ``text`` or ``other``."""
    name: str
    """Name of a tag's element; otherwise empty."""
    attributes: dict[str, str]
    raw: str
    """Its characters in the document, which is the concatenation of all tokens."""


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
    """Name by which an opening and a closing piece make a pair; empty for other pieces."""


class Unit(NamedTuple):
    """A text that is translated as one line."""

    line: str
    start: int
    """Index of the first part that the translation replaces."""
    end: int
    """Index after the last one."""
    codes: dict[str, tuple[int, int]]
    """For each tag and placeholder in the line, its first part and the one after its last."""
    is_attribute: bool
    """Whether its text is the value of an attribute."""
    is_markup: bool
    """Whether its text is markup itself, such as escaped HTML in XLIFF."""


class MarkupDocument(ABC):
    """The parts of a document, and the units among them: a ``Document`` with markup."""

    def __init__(self, job: TranslateJob) -> None:
        self.parts: list[str] = []
        """Their concatenation is the document."""
        self.units: list[Unit] = []
        self.added: set[int] = set()
        """Indices of parts that the document did not have."""
        self.unplaced: list[Unplaced] = []

    @abstractmethod
    def parse(self, text: str, src_lang: str, tgt_lang: str) -> None:
        """Cuts a document into parts and units; raises ``InputError`` if it is damaged."""

    def read(self, content: bytes, src_lang: str, tgt_lang: str) -> list[str]:
        """The lines of the units.

        Raises:
            InputError: The document is damaged, not in UTF-8, or for other languages.
        """
        declared = _ENCODING.search(content[:1024])
        if declared and declared[1].lower() not in (b"utf-8", b"utf8"):
            declaration = declared[0].decode(errors="replace")
            raise InputError(f"not in UTF-8 ({declaration}): convert it, and its declaration")
        self.parse(decode(content), src_lang, tgt_lang)
        return [unit.line for unit in self.units]

    def write(self, translations: Sequence[str]) -> TranslatedDocument:
        """The document with translations of its units."""
        text, failed = self.translated(translations)
        warnings = list_places(UNPLACED, self.unplaced, self.place)
        warnings += list_places(FAILED, failed, lambda unit: f"line {self.line_number(unit.start)}")
        return TranslatedDocument(text.encode(), len(self.units) - len(failed), warnings)

    def add_text(self, raw: str) -> Piece:
        """Adds the parts of a text; the spaces at its ends do not belong to the piece."""
        match = _TEXT.fullmatch(raw)
        assert match is not None
        self.parts += match.groups()
        return Piece("text", len(self.parts) - 2, len(self.parts) - 1)

    def add_unit(
        self, pieces: Sequence[Piece], *, attribute: bool = False, nested: bool = False
    ) -> None:
        """Adds the unit that consists of these pieces, unless it has nothing to translate.

        Markup around all of its text, such as a link that fills a list item, stays where it is.
        ``attribute`` is of ``Unit``; with ``nested``, text that looks like markup is taken for it.
        """
        pairs = _pairs(pieces)
        first, last = self._trim(pieces, pairs)
        line, codes = "", {}
        texts = {  # with the spaces around them
            i: "".join(map(_plain, self.parts[piece.start - 1 : piece.end + 1]))
            for i, piece in enumerate(pieces[first:last], first)
            if piece.kind == "text"
        }
        plain = "".join(texts.values())
        is_markup = nested and _TAG.search(plain) is not None and not is_malformed(plain)
        for i in range(first, last):
            kind, start, end, _ = pieces[i]
            if kind == "text":
                line += texts[i] if is_markup else escape(texts[i], quote=False)
                continue
            partner = pairs.get(i, -1)
            paired = first <= partner < last
            number = pieces[min(i, partner)].start if paired else start
            name = "x" + str(number).translate(str.maketrans(_DIGITS, _LETTERS))
            if kind == "verbatim":
                code = f"{{{name}}}"
            elif not paired:
                code = f"<{name}/>"
            else:
                code = f"<{name}>" if i < partner else f"</{name}>"
            codes[code] = (start, end)
            line += code
        line = " ".join(WORD.findall(line.strip()))  # no-break spaces stay
        text = _CODE.sub("", line)
        if _LETTER.search(text) and not _IDENTIFIER.fullmatch(text):
            place = pieces[first].start, pieces[last - 1].end
            self.units.append(Unit(line, *place, codes, attribute, is_markup))

    def _trim(self, pieces: Sequence[Piece], pairs: dict[int, int]) -> tuple[int, int]:
        """The range of pieces without tags that enclose all of it and without wordless ends."""
        first, last = 0, len(pieces)
        while first < last:
            end = max(first, pairs.get(first, first)) + 1  # of the element at the start
            start = min(last - 1, pairs.get(last - 1, last))
            if start == first and end == last > first + 1:
                first, last = first + 1, last - 1
            elif end <= last and self._is_wordless(pieces[first:end]):
                first = end
            elif start >= first and self._is_wordless(pieces[start:last]):
                last = start
            else:
                break
        return first, last

    def _is_wordless(self, pieces: Sequence[Piece]) -> bool:
        """Whether pieces are blank text, or an element without words, such as an icon or ¶."""
        pattern = _LETTER_OR_DIGIT if len(pieces) > 1 else re.compile(r"\S")
        return not any(
            piece.kind == "verbatim"
            or (piece.kind == "text" and pattern.search(_plain(self.parts[piece.start])))
            for piece in pieces
        )

    def translated(self, translations: Sequence[str]) -> tuple[str, list[Unit]]:
        """The document with a translation of the line of each unit.

        Also returns the units that are left as they are, because their translation has no words
        or lacks markup of the line.
        """
        parts, failed = [*self.parts], []
        pairs = zip(self.units, translations, strict=True)
        # Attributes first: their tags are parts of texts.
        for unit, translation in sorted(pairs, key=lambda pair: not pair[0].is_attribute):
            codes, text = dict(unit.codes), ""
            for piece in _CODE.split(translation):
                if piece in unit.codes:
                    start, end = codes.pop(piece, (0, 0))
                    text += "".join(parts[start:end])
                else:  # what the line has as entities is escaped, and perhaps nothing else
                    content = piece if unit.is_markup else unescape(piece)
                    text += escape(content, quote=unit.is_attribute)
            if codes or not is_usable(*(_CODE.sub("", line) for line in (unit.line, translation))):
                failed.append(unit)
                continue
            rest = unit.end - unit.start - 1
            parts[unit.start : unit.end] = [text, *[""] * rest]
        return "".join(parts), failed

    def place(self, unplaced: Unplaced) -> str:
        """What a tag or placeholder of a line stands for, and where: ``<a> in line 5``."""
        match = _CODE.search(unplaced.markup)
        if match is None or not any(match[0] in unit.codes for unit in self.units):
            starts = [unit.start for unit in self.units if unplaced.line in unit.line]
            return f"{unplaced.markup} in line {self.line_number(starts[0])}"
        part = int(re.sub(r"\W|x", "", match[0]).translate(str.maketrans(_LETTERS, _DIGITS)))
        return f"{self.parts[part].split()[0].rstrip('/>')}> in line {self.line_number(part)}"

    def line_number(self, part: int) -> int:
        """The line of the document in which a part starts, from 1."""
        given = (raw for i, raw in enumerate(self.parts[:part]) if i not in self.added)
        return sum(raw.count("\n") for raw in given) + 1


def decode(content: bytes) -> str:
    """The text of a document; raises ``InputError`` if it is not in UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02X} at position {error.start + 1:,}"
        raise InputError(f"not valid UTF-8 ({byte}): convert it, e.g. with iconv") from None


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


def _plain(raw: str) -> str:
    """The characters that a text in a document stands for."""
    return "".join(text if i % 2 else unescape(text) for i, text in enumerate(_CDATA.split(raw)))
