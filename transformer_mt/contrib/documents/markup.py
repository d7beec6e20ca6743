"""Tags, placeholders and addresses that survive translation unchanged (``markup=keep``).

Tags are removed from a line before it is translated. Afterwards the word alignment tells which
words of the translation come from the words that a tag enclosed, and the tag is restored around
these. ``{name}``, ``%s``, addresses and similar verbatim text are replaced by numbers, which models
copy, and restored in their place. So the model never sees markup that it was not trained on, and
each piece of markup occurs exactly once, properly nested. Entities (``&amp;``) are translated as
the characters that they stand for. A space beside a tag becomes a plain one; within text, no-break
spaces are characters like any other.
"""

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from typing import NamedTuple

from transformer_mt import Translator
from transformer_mt.contrib.documents.tag_placement import (
    ExtractedLine,
    Tag,
    restore_markup,
)
from transformer_mt.protocols import SPACES, WORD, Translation

log = logging.getLogger(__name__)

_ATTRIBUTES = r"""(?:\s(?:(?:"[^"<]*"|'[^'<]*'|[^<>"'])*?(?=/?>)|[^<>]*?))?"""  # > may be quoted
_TAG = rf"<(?P<closes>/?)(?P<name>[A-Za-z][\w:.-]*|\d+){_ATTRIBUTES}(?P<empty>/?)>"
_ADDRESS = r"[^\s<>\"{}()]|\([^\s<>\"{}()]*\)"  # with balanced parentheses
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"  # three levels, as in ICU plurals
_VERBATIM = "|".join(
    (
        # {0}, {{name}}, ${name}, #{name}, {n, plural, one {a} other {b}}; {v}2 and {h}{m} as one
        rf"(?<!\d)\d*+(?:[$#%]?{_BRACES}\d*+)+",
        # %s, %1$s, %(name)s, %5.2f, %zu, %<PRIu64>, %ds for seconds; %1, %L1 of Qt; not 50% off
        r"(?:(?<!\d)\d*+%%|(?<!\d)%(?:(?:\(\w+\)|\d+\$)?[-+#0']*+(?:\d+|\*)?(?:\.(?:\d+|\*))?"
        r"(?:hh?|ll?|[Lqjzt])?(?:[diouxXeEfFgGcspn@](?![^\W\d_]{3})|<PRI\w+>)|L?[1-9](?!\d|[.,]\d)))+",
        rf"(?:(?:https?|ftp)://|www\.)(?:{_ADDRESS})*(?:(?![.,;:!?\]'»“”’])(?:{_ADDRESS}))",
        r"(?<![\w.+-])[\w.+-]++@\w[\w-]*(?:\.\w[\w-]*)+",
    )
)
_STANDALONE = r"<!--(?:(?!<!--).)*?-->|<\?[^<>]*?\?>|<!\[CDATA\[(?:(?!<!\[).)*?\]\]>"
_ENTITY = r"&(?:[A-Za-z]\w{1,31}|#\d+|#[xX][0-9A-Fa-f]+);"
MARKUP = re.compile(
    f"{_TAG}|(?P<alone>{_STANDALONE})|(?P<verbatim>{_VERBATIM})|(?P<entity>{_ENTITY})"
)
"""A tag, verbatim text such as a placeholder or an address, or an entity."""


class Unplaced(NamedTuple):
    """Markup that no word of a translation belongs to."""

    markup: str
    line: str
    """The line that it is from, or the sentence of it."""


EMPTY_ELEMENTS = re.compile("area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr")
"""HTML elements without content."""
_WORD_BREAKS = re.compile("br|hr|p|div|li|ul|ol|td|th|tr|table|h[1-6]")
"""HTML elements that separate words without a space."""

_PUNCTUATION = re.compile(r"[^\w\s<>]*")
_LETTER, _WORD_CHARACTER = re.compile(r"[^\W\d_]"), re.compile(r"\w")
_TAG_START = re.compile(r"</?[A-Za-z]|<[!?]")


def is_usable(line: str, translation: str) -> bool:
    """Whether a translation has text, and words beside its markup if the line has."""
    has_words = [_WORD_CHARACTER.search(MARKUP.sub("", text)) for text in (line, translation)]
    return bool(translation.strip() and (has_words[1] or not has_words[0]))


def is_malformed(line: str) -> bool:
    """Whether something in a line looks like the beginning of a tag, but there is no such tag."""
    return "<" in line and _TAG_START.search(MARKUP.sub("", line)) is not None


class MarkupTranslator:
    """Translates the text of lines with a ``Translator``, and preserves their markup.

    A line whose markup does not parse is translated as text.

    Args:
        translator: Translates the text.
        unplaced: Collects what could not be placed in the best translations, if it is given.
    """

    def __init__(self, translator: Translator, unplaced: list[Unplaced] | None = None):
        self._unplaced = unplaced
        self._has_warned = False
        self._translator = translator
        numbers = [str(number) for number in range(10, 100)]
        # Numbers of few pieces are frequent in the training text.
        self._numbers = sorted(numbers, key=lambda number: len(translator.tokenizer.encode(number)))

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first; they have no alignment."""
        results: dict[int, list[Translation]] = {}
        plain: list[int] = []
        extracted: dict[int, ExtractedLine] = {}
        before: list[str] = []  # the text of each line, its tag
        for i, tagged in enumerate(lines):
            tag, line = self._translator.split_tag(tagged)
            before.append(f"{tag} " if tag else "")
            malformed = is_malformed(line)
            if malformed and not self._has_warned:
                self._has_warned = True
                log.warning(
                    f"lines with markup that does not parse are translated as text; the first: "
                    f"{line[:60]!r}; for whole pages use format=html"
                )
            if malformed or not MARKUP.search(line):
                plain.append(i)
            elif not _LETTER.search(MARKUP.sub("", line)):
                results[i] = [Translation(line.strip(SPACES), 0.0, 0)]  # nothing to translate
            else:
                extracted[i] = extract_markup(line, partial(self._normalize, tag), self._numbers)
        # Separately, because alignment takes time.
        translations = self._translator.translate_nbest([lines[i] for i in plain], nbest)
        results.update(zip(plain, translations, strict=True))
        parts = [before[i] + source.text for i, source in extracted.items()]
        translations = self._translator.translate_nbest(parts, nbest, align=True)
        for (i, source), best in zip(extracted.items(), translations, strict=True):
            results[i] = []
            for translation in best:
                unplaced = list[str]()
                links = translation.alignment or []
                text = restore_markup(source, translation.text, links, unplaced)
                if not results[i] and self._unplaced is not None:  # the best one
                    self._unplaced += [Unplaced(markup, lines[i]) for markup in unplaced]
                results[i].append(replace(translation, text=text, alignment=None))
        return [results[i] for i in range(len(lines))]

    def _normalize(self, tag: str, text: str) -> str:
        """Text as the model reads it: in SentencePiece's ``nmt_nfkc``, ``it´s`` is two words."""
        line = self._translator.normalizer.src(text, tag)
        return self._translator.tokenizer.normalize(line)


def extract_markup(
    line: str, normalize: Callable[[str], str], numbers: Sequence[str]
) -> ExtractedLine:
    """Removes the markup from a line, and normalises the text between.

    Verbatim text is replaced by ``numbers`` that do not occur in the line.
    """
    given, line = line, MARKUP.sub(_unescape_space, line)
    has_entities = line != given
    line = f" {line.strip()} "  # in the translation, words may follow or precede its ends
    unused = iter([number for number in numbers if number not in line])
    text, between, previous_end = "", "", 0
    tags: list[tuple[re.Match[str], int]] = []  # and their positions in the text
    placeholders: list[tuple[str, str, int]] = []
    last_end, last_is_tag = len(line), False  # of the last closing tag or placeholder
    glued: list[int] = []  # positions of words with no space before them in the line
    for match in MARKUP.finditer(line):
        between += line[previous_end : match.start()]
        previous_end = match.end()
        entity = match["entity"] or ""
        if (character := unescape(entity)) != entity:
            between += character
            has_entities = True
            continue
        text += _normalize_between(between, normalize)
        between = ""
        follows = _PUNCTUATION.fullmatch(line, last_end, match.start())
        if follows and not match["closes"] and (match["name"] or last_is_tag):
            text += " "  # <b>one element</b>/<i>another</i> share no word
            glued.append(len(text))
        if match["closes"] or match["verbatim"]:
            last_end, last_is_tag = match.end(), bool(match["name"])
        if verbatim := match["verbatim"] or entity:
            number = next(unused, "")
            if number:
                text += " " if text[-1:].isdigit() else ""
                placeholders.append((number, verbatim, len(text)))
            text += number or verbatim  # beyond 90 in a line they are translated as text
            continue
        tags.append((match, len(text)))
        if _WORD_BREAKS.fullmatch(_name(match)):
            text += " "
    text += _normalize_between(between + line[previous_end:], normalize)

    starts = [match.start() for match in WORD.finditer(text)]
    root = Tag("", 0, len(starts))
    open_tags = [root]
    for match, position in tags:
        _add_tag(match, text, position, bisect_left(starts, position), open_tags)
    _close_unclosed(open_tags, 1)
    return ExtractedLine(
        " ".join(WORD.findall(text)),
        root,
        {
            number: (verbatim, bisect_left(starts, position + 1) - 1)
            for number, verbatim, position in placeholders
        },
        has_entities,
        {
            bisect_left(starts, position)
            for position in glued
            if text[position : position + 1].strip()
        },
    )


def _unescape_space(match: re.Match[str]) -> str:
    """A piece of markup, or the space that it stands for (``&nbsp;``)."""
    character = unescape(match["entity"] or "")
    return character if character.isspace() else match[0]


def _normalize_between(text: str, normalize: Callable[[str], str]) -> str:
    """Normalises text between two pieces of markup; a space at an end is a plain one."""
    content = text.strip()
    content = content and normalize(content).strip()
    return f"{' ' * text[:1].isspace()}{content}{' ' * text[-1:].isspace()}"


def _add_tag(
    match: re.Match[str],
    text: str,
    position: int,
    word: int,
    open_tags: list[Tag],
) -> None:
    """Adds a tag after ``position`` characters, ``word`` words of text, to the innermost pair."""
    name = _name(match)
    left = text[position - 1 : position].strip(SPACES)
    right = text[position : position + 1].strip(SPACES)
    tag = Tag(
        match[0],
        word,
        word,
        (
            " " * match.string[match.start() - 1].isspace(),
            " " * match.string[match.end()].isspace(),
        ),
        left=left,
        right=right,
        name=name,
    )
    if match["closes"]:
        candidates = [i for i, opened in enumerate(open_tags) if i and opened.name == name]
        if candidates:
            _close_unclosed(open_tags, candidates[-1] + 1)
            if not left:  # as in <b>note: </b>text
                tag.left, tag.right = text[max(position - 2, 0) : position].strip(SPACES)[-1:], ""
            open_tags[-1].closing, open_tags[-1].end = tag, word
            open_tags.pop()
            return
    elif not (match["alone"] or match["empty"] or EMPTY_ELEMENTS.fullmatch(name)):
        tag.start = word - bool(left and right)  # inside a word: it encloses the whole word
        if not right:
            tag.left, tag.right = "", text[position : position + 2].strip(SPACES)[:1]
        open_tags[-1].children.append(tag)
        open_tags.append(tag)
        return
    if left and right and match.string[match.end()] != "<":
        tag.spaces = tag.spaces[0], " "  # in the translation, a word may follow it
    open_tags[-1].children.append(tag)


def _name(tag: re.Match[str]) -> str:
    """The name of an element; empty for comments and the like."""
    return (tag["name"] or "").lower()


def _close_unclosed(open_tags: list[Tag], depth: int) -> None:
    """Turns tags that are open, from ``depth`` on, into standalone tags, children into siblings."""
    while len(open_tags) > depth:
        unclosed = open_tags.pop()
        unclosed.end = unclosed.start
        open_tags[-1].children += unclosed.children
        unclosed.children = []
