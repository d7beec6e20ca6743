"""Tags, placeholders and addresses that come through a translation unharmed (``markup=keep``).

Tags are taken out of a line before it is translated, and put back around the words that come from
the words they stood around, by the alignment. ``{name}``, ``%s``, addresses and the like are
translated as numbers, which models copy, and then put in the place of these. So what the model
never learnt cannot confuse it, and each piece of markup comes back once, nested as it was. Entities
(``&amp;``) are translated as the characters that they stand for.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.lines.tag_placement import Marked, Tag, put_back
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError

_ATTRIBUTES = r"""(?:\s(?:(?:"[^"<]*"|'[^'<]*'|[^<>"'])*?(?=/?>)|[^<>]*?))?"""  # > may be quoted
_TAG = rf"<(?P<closes>/?)(?P<name>[A-Za-z][\w:.-]*|\d+){_ATTRIBUTES}(?P<empty>/?)>"
_ADDRESS = r"[^\s<>\"{}()]|\([^\s<>\"{}()]*\)"  # with parentheses in pairs
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"  # three deep, as ICU's plurals are
_VERBATIM = "|".join(
    (
        # {0}, {{name}}, ${name}, #{name}, {n, plural, one {a} other {b}}; and {v}2, {h}{m}, whole
        rf"(?<!\d)\d*+(?:[$#]?{_BRACES}\d*+)+",
        r"(?<![\w%])%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?)?[sdiufgxXc@](?!\w)",  # %1$s
        rf"(?:(?:https?|ftp)://|www\.)(?:{_ADDRESS})*(?:(?![.,;:!?\]'»“”’])(?:{_ADDRESS}))",
        r"(?<![\w.+-])[\w.+-]++@\w[\w-]*(?:\.\w[\w-]*)+",
    )
)
_ALONE = r"<!--(?:(?!<!--).)*?-->|<\?[^<>]*?\?>|<!\[CDATA\[(?:(?!<!\[).)*?\]\]>"
_ENTITY = r"&(?:[A-Za-z]\w{1,31}|#\d+|#[xX][0-9A-Fa-f]+);"
MARKUP = re.compile(f"{_TAG}|(?P<alone>{_ALONE})|(?P<verbatim>{_VERBATIM})|(?P<entity>{_ENTITY})")
"""A tag, what is kept to the letter, or a character that is spelled out."""

# Elements of HTML without content, and those that part words where no space does.
_EMPTY = re.compile("area|br|col|embed|hr|img|input|link|meta|source|track|wbr")
_PARTS_WORDS = re.compile("br|hr|p|div|li|ul|ol|td|th|tr|table|h[1-6]")

_LETTER = re.compile(r"[^\W\d_]")


class MarkupTranslator:
    """Translates the words of lines and keeps their markup.

    Args:
        translator: Translates lines without markup.
        tokenizer: Its vocabulary.
        normalizer: What its lines go through.

    Raises:
        InputError: The normalisation makes other words than those of the line.
    """

    def __init__(self, translator: Translator, tokenizer: Tokenizer, normalizer: Normalizer):
        if not normalizer.keeps_words:
            raise InputError(
                f"markup=keep does not go with data.normalization={normalizer.name}, whose words "
                "are not those of the line"
            )
        self._translator, self._normalizer = translator, normalizer
        numbers = [str(number) for number in range(10, 100)]
        lengths = dict(zip(numbers, map(len, tokenizer.encode(numbers)), strict=True))
        # Those of few pieces are those that the training text has often.
        self._numbers = sorted(numbers, key=lengths.__getitem__)

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line, best first; they have no alignment."""
        found: dict[int, list[Translation]] = {}
        plain: list[int] = []
        marked: dict[int, Marked] = {}
        for i, line in enumerate(lines):
            if not MARKUP.search(line):
                plain.append(i)
            elif not _LETTER.search(MARKUP.sub("", line)):
                found[i] = [Translation(line.strip(), 0.0, 0)]  # there is nothing to translate
            else:
                marked[i] = take_out(line, self._normalizer.src, self._numbers)
        # Apart, because an alignment costs time.
        answers = self._translator.translate_nbest([lines[i] for i in plain], nbest)
        found.update(zip(plain, answers, strict=True))
        texts = [each.text for each in marked.values()]
        answers = self._translator.translate_nbest(texts, nbest, align=True)
        for (i, source), best in zip(marked.items(), answers, strict=True):
            found[i] = [
                replace(
                    each, text=put_back(source, each.text, each.alignment or []), alignment=None
                )
                for each in best
            ]
        return [found[i] for i in range(len(lines))]


def take_out(line: str, normalize: Callable[[str], str], numbers: Sequence[str]) -> Marked:
    """Takes the markup out of a line.

    Args:
        line: The line.
        normalize: What the text between markup goes through; it may remove spaces at both ends.
        numbers: What may stand for markup that is kept to the letter, the most common first.
    """
    unused = iter([number for number in numbers if number not in line])
    text, before = "", 0
    tags: list[tuple[re.Match[str], int]] = []  # and their places in the text
    verbatim: list[tuple[str, str, int]] = []
    entities = False
    for match in MARKUP.finditer(line):
        text += _between(line[before : match.start()], normalize)
        before = match.end()
        entity = match["entity"] or ""
        if (character := unescape(entity)) != entity:
            text += character
            entities = True
            continue
        if what := match["verbatim"] or entity:
            number = next(unused, "")
            if number:
                text += " " if text[-1:].isdigit() else ""
                verbatim.append((number, what, len(text)))
            text += number or what  # beyond 90 in a line they are text
            continue
        tags.append((match, len(text)))
        if _PARTS_WORDS.fullmatch(_name(match)):
            text += " "
    text += _between(line[before:], normalize)

    starts = [match.start() for match in re.finditer(r"\S+", text)]
    whole = Tag("", 0, len(starts))
    around = [whole]  # the pairs that are open
    for match, at in tags:
        _take(match, line, text, at, bisect_left(starts, at), around)
    _leave(around, 1)
    kept = {number: (what, bisect_left(starts, at + 1) - 1) for number, what, at in verbatim}
    return Marked(" ".join(text.split()), whole, kept, entities)


def _between(text: str, normalize: Callable[[str], str]) -> str:
    """Text between two pieces of markup, normalised, with the spaces at its ends."""
    if not text.strip():
        return " " if text else ""
    left, right = (" " if text[end].isspace() else "" for end in (0, -1))
    return f"{left}{normalize(text).strip()}{right}"


def _take(
    match: re.Match[str], line: str, text: str, at: int, words: int, around: list[Tag]
) -> None:
    """Notes a tag.

    Args:
        match: The tag.
        line: The line that it is in.
        text: What the line says without it.
        at: Its place in that text.
        words: How many words of the text begin before it.
        around: The pairs that are open here, from the outside in; it is changed.
    """
    name = _name(match)
    left, right = (bool(text[i : i + 1].strip()) for i in (at - 1, at)) if at else (False, False)
    tag = Tag(
        match[0],
        words,
        words,
        # The ends of a line count as spaces: another tag's may come to lie there.
        space_before=not line[: match.start()].strip() or line[match.start() - 1].isspace(),
        space_after=not line[match.end() :].strip() or line[match.end()].isspace(),
        touches_left=left,
        touches_right=right,
        mark_before=_is_mark(text[max(at - 1, 0) : at]),
        mark_after=_is_mark(text[at : at + 1]),
        name=name,
    )
    if match["closes"]:
        opened = [i for i, each in enumerate(around) if i and each.name == name]
        if opened:
            _leave(around, opened[-1] + 1)
            around[-1].closing, around[-1].end = tag, words
            around.pop()
            return
    elif not (match["alone"] or match["empty"] or _EMPTY.fullmatch(name)):
        tag.first = words - (left and right)  # within a word: all of it
        around[-1].inside.append(tag)
        around.append(tag)
        return
    if left and right:
        tag.space_after = True  # within a word: after it
    around[-1].inside.append(tag)


def _name(tag: re.Match[str]) -> str:
    """The name of an element; nothing, if it is a comment or the like."""
    return (tag["name"] or "").lower()


def _is_mark(character: str) -> bool:
    return bool(character.strip()) and not re.match(r"\w", character)


def _leave(around: list[Tag], depth: int) -> None:
    """Ends pairs that nothing closes: such a tag stands alone, and what it held beside it."""
    while len(around) > depth:
        unclosed = around.pop()
        unclosed.end = unclosed.first
        around[-1].inside += unclosed.inside
        unclosed.inside = []
