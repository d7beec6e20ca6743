"""Reader of translation memories (TMX 1.1 to 1.4b), as a stream in bounded memory."""

import logging
from collections.abc import Iterator
from functools import cache
from xml.parsers import expat

from transformer_mt import InputError
from transformer_mt.config import SourceConfig
from transformer_mt.config.languages import is_variant
from transformer_mt.protocols import Pair, ReadBlocks

log = logging.getLogger(__name__)

_CODE = {"bpt", "ept", "it", "ph", "ut"}
"""Inline elements whose content is formatting code; ``ut`` is deprecated in TMX 1.4."""


def read_tmx(
    source: SourceConfig, src_lang: str, tgt_lang: str, read_blocks: ReadBlocks
) -> Iterator[Pair]:
    """Streams the units of a translation memory that have text in both languages.

    The columns of the source are language codes, which stand for their variants, too: ``de`` for
    ``de-AT``. Of several texts of a unit in one language the first is used; a blank one is none.
    """
    units = _Units(source.name, source.columns(src_lang, tgt_lang))
    for block in read_blocks(source.name):
        yield from units.read(block)
    yield from units.read(b"")
    units.report()


class _Units:
    """The units of a TMX file: expat calls the methods for each tag."""

    def __init__(self, path: str, languages: tuple[str, str]):
        self._path, self._languages = path, languages
        self._sides = dict[str, int | None]()  # by language code; 0: source, 1: target
        self._pairs = list[Pair]()
        self._num_units = self._num_incomplete = 0
        self._unit: list[str | None] = [None, None]  # both sides of the open <tu>
        self._side: int | None = None  # of the open <tuv>
        self._text = list[str]()  # of the open <seg>
        self._kept = list[bool]()  # whether text is kept, in <seg> and each element open within it
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = parser.specified_attributes = True
        parser.StartElementHandler, parser.EndElementHandler = self._start_root, self._end
        # No external DTD is loaded. What it may declare would be left out of the text.
        parser.EntityDeclHandler = parser.SkippedEntityHandler = self._refuse_entity

    def read(self, block: bytes) -> list[Pair]:
        """The pairs that end in the next block of the file; an empty block ends the file."""
        try:
            self._parser.Parse(block, not block)
        except (expat.ExpatError, ValueError, LookupError) as error:  # or of an unknown encoding
            reason, *_ = str(error).split(": line")  # ``_error`` names it
            raise self._error(f"not well-formed XML in a known encoding: {reason}") from error
        pairs, self._pairs = self._pairs, []
        return pairs

    def report(self) -> None:
        """Logs how many units were not used."""
        (src, tgt), total = self._languages, f"{self._num_units:,} units"
        if self._num_units == self._num_incomplete:
            found = ", ".join(sorted(self._sides)[:20]) or "none"
            raise InputError(
                f"{self._path}: none of its {total} has text in both {src} and {tgt}; its "
                f"languages: {found}; choose two with src_column and tgt_column"
            )
        if self._num_incomplete:
            without = f"{self._num_incomplete:,} of {total} have no text in {src} or in {tgt}"
            log_once(f"{self._path}: {without} and are skipped")

    def _error(self, message: str) -> InputError:
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        return InputError(f"{self._path}, line {line}, column {column}: {message}")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._error(f"uses the entity {name}: replace it by its text")

    def _start_root(self, name: str, _: dict[str, str]) -> None:
        if name != "tmx":
            raise self._error(f"not TMX: the root element is <{name}>")
        self._parser.StartElementHandler = self._start

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._kept:
            outer = self._kept[-1]
            self._kept.append(name not in _CODE and (outer or name == "sub"))
            self._continue_text(outer, self._kept[-1])
        elif name == "tuv":
            code = attributes.get("xml:lang") or attributes.get("lang")  # lang: TMX 1.1
            if not code:
                raise self._error("<tuv> has no xml:lang: add its language")
            if code not in self._sides:
                own = [lang for lang in self._languages if is_variant(code, lang)]
                # From de to de-AT, text in de-AT is on the target side.
                self._sides[code] = self._languages.index(max(own, key=len)) if own else None
            self._side = self._sides[code]
        elif name == "seg" and self._side is not None:
            self._text, self._kept = [], [True]
            self._parser.CharacterDataHandler = self._text.append
        elif name == "tu":
            self._unit = [None, None]

    def _end(self, name: str) -> None:
        if self._kept:
            inner = self._kept.pop()
            if self._kept:
                self._continue_text(self._kept[-1], inner)
                return
            self._parser.CharacterDataHandler = None
            assert self._side is not None
            text = one_line("".join(self._text))
            if text.strip() and self._unit[self._side] is None:
                self._unit[self._side] = text
        elif name == "tu":
            self._num_units += 1
            src, tgt = self._unit
            if src is None or tgt is None:
                self._num_incomplete += 1
            else:
                self._pairs.append(Pair(src, tgt))

    def _continue_text(self, outer: bool, inner: bool) -> None:
        if inner and not outer:  # before and after <sub>, such as a footnote within code
            self._text.append("\n")
        self._parser.CharacterDataHandler = self._text.append if self._kept[-1] else None


def one_line(text: str) -> str:
    """The text with a space for each line feed and the spaces around it; others are significant."""
    if "\n" not in text:
        return text
    return " ".join(filter(None, (line.strip(" \t\r") for line in text.split("\n"))))


@cache
def log_once(message: str) -> None:
    """Logs a message, once: training reads its data more than once."""
    log.info(message)
