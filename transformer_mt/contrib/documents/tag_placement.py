"""Places the markup of a line in its translation, by the word alignment."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise

from transformer_mt.protocols import WORD


@dataclass
class Tag:
    """A standalone tag or, with ``closing``, a pair of tags and what it encloses.

    Characters of other tags do not count for what is before, after, left or right of a tag, except
    in ``spaces``.
    """

    text: str
    start: int
    """Index of the first source word inside; of a standalone tag, the word after it."""
    end: int
    """Index of the first source word after it."""
    spaces: tuple[str, str] = (" ", " ")
    """Space directly to the left in the line, and to the right; empty if there is none."""
    left: str = ""
    """Character of the text directly to the left; empty if there is none, or a space. A closing tag
    has the last one that is not a space."""
    right: str = ""
    """Character of the text directly to the right; empty if there is none, or a space. The opening
    tag of a pair has the first one that is not a space."""
    name: str = ""
    """Name of the element."""
    closing: "Tag | None" = None
    """The closing tag of a pair."""
    children: "list[Tag]" = field(default_factory=list)
    """Tags inside the pair, in the order of the line."""


@dataclass(frozen=True)
class ExtractedLine:
    """A line without its markup, and what is needed to restore it."""

    text: str
    """The text to translate: words with single spaces."""
    root: Tag
    """A pair without text that encloses the whole line."""
    placeholders: dict[str, tuple[str, int]]
    """For each number that replaces verbatim text: this text, and the index of its source word."""
    has_entities: bool = False
    """Whether the line has entities: then the translation needs them too."""
    glued: set[int] = field(default_factory=set)
    """Indices of the words that no space precedes in the line, only tags or punctuation."""


@dataclass(frozen=True)
class _Span:
    """A piece of output, and the spaces that separate it from its neighbours; may be empty."""

    text: str
    spaces: tuple[str, str] = (" ", " ")
    """Space that it had on its left and on its right, if it is a tag; otherwise, that it needs."""
    kind: str = ""
    """``alone``, ``opening`` or ``closing`` for tags; empty for words."""
    glued: bool = False
    """Whether no space may precede it: it follows the same word as in the line, without a space."""


_MOVED_LEFT, _MOVED_RIGHT = (" ", ""), ("", " ")
"""``spaces`` of punctuation that a tag separates from its word."""


def restore_markup(
    source: ExtractedLine,
    translation: str,
    alignment: Sequence[tuple[int, int]],
    unplaced: list[str],
) -> str:
    """The translation of a line's text, with the line's markup where the alignment puts it.

    Placeholders that the translation lacks, and tags around words that nothing is aligned with, go
    where the words before them are; they are added to ``unplaced``.
    """
    links = {target: word for word, target in alignment}
    words = WORD.findall(translation)
    aligned = [links.get(i, -1) for i in range(len(words))]  # source word of each target word
    _fix_placeholders(source, words, aligned, unplaced)
    word_spans = [
        _Span(word, glued=i > 0 and aligned[i] in source.glued and aligned[i - 1] == aligned[i] - 1)
        for i, word in enumerate(words)
    ]
    spans = [
        _Span("", ("", "")),
        *_render(source.root, word_spans, aligned, 0, len(words), unplaced),
    ]
    output = ""
    for left, right in pairwise(spans):
        text = right.text
        if not right.kind:  # only now, so that no punctuation of a placeholder was moved
            text = escape(text, quote=False) if source.has_entities else text
            for number, (verbatim, _) in source.placeholders.items():
                text = _placeholder(number).sub(lambda _, verbatim=verbatim: verbatim, text)  # type: ignore[misc]
        output += _space_between(left, right) + text
    return output


def _fix_placeholders(
    source: ExtractedLine, words: list[str], aligned: list[int], unplaced: list[str]
) -> None:
    """Makes each placeholder number occur exactly once, in place."""
    for number, (verbatim, word) in source.placeholders.items():
        places = [i for i, text in enumerate(words) if _placeholder(number).search(text)]
        if not places:
            unplaced.append(verbatim)
            position = _insertion_point(word, aligned, 0, len(words))
            words.insert(position, number)
            aligned.insert(position, word)
            continue
        kept = next((i for i in places if aligned[i] == word), places[0])
        aligned[kept] = word
        for i in reversed(places):
            head, *rest = _placeholder(number).split(words[i])
            words[i] = head + (number if i == kept else "") + "".join(rest)
            if not words[i]:
                del words[i], aligned[i]


def _placeholder(number: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\d){number}(?!\d)")


def _render(
    tag: Tag,
    words: Sequence[_Span],
    aligned: Sequence[int],
    lo: int,
    hi: int,
    unplaced: list[str],
) -> Iterator[_Span]:
    """The words ``lo`` to ``hi`` of the translation, with the tags inside ``tag``."""
    position, moved = lo, list[_Span]()  # punctuation, to follow the notes after its word
    for start, end, child in _place_children(tag, aligned, lo, hi, unplaced):
        before, position = [*words[position:start]], end
        if before or child.closing is not None:
            before, moved = [*moved, *before], []
        if child.closing is None:
            is_inside = before and child.left and _is_punctuation(child.right)  # m<sup>2</sup>,
            mark = re.search(r"(?<=\w)[^\w>]+$", before[-1].text) if is_inside else None
            if mark:
                before[-1] = replace(before[-1], text=before[-1].text[: mark.start()])
                moved = [_Span(mark[0], _MOVED_RIGHT)]
            yield from (*before, _Span(child.text, child.spaces, "alone"))
            continue
        yield from before
        content = [*_render(child, words, aligned, start, end, unplaced)]
        fills_parent = (child.start, child.end) == (tag.start, tag.end)
        left, content, right = _move_punctuation(child, child.closing, content, fills_parent)
        yield from left
        yield _Span(child.text, child.spaces, "opening", start < end and words[start].glued)
        yield from content
        yield _Span(child.closing.text, child.closing.spaces, "closing")
        yield from right
    yield from (*moved, *words[position:hi])


def _move_punctuation(
    opening: Tag, closing: Tag, content: list[_Span], fills_parent: bool
) -> tuple[list[_Span], list[_Span], list[_Span]]:
    """Moves punctuation at the ends of a pair outside, unless the line has it inside.

    If the pair encloses all that its parent does, it is moved only where the line has it outside.
    Returns what goes before, between and after the two tags.
    """
    left: list[_Span] = []
    right: list[_Span] = []
    if content and (opening.left or not (fills_parent or _is_punctuation(opening.right))):
        first, *rest = content
        if first.spaces == _MOVED_LEFT and not first.kind:  # of a pair inside
            left, content = [first], rest
        elif mark := re.match(r"[^\w<]+(?=\w)", first.text):
            left = [_Span(mark[0], _MOVED_LEFT)]
            content = [_Span(first.text[mark.end() :], first.spaces), *rest]
    if content and (closing.right or not (fills_parent or _is_punctuation(closing.left))):
        *rest, last = content
        if last.spaces == _MOVED_RIGHT and not last.kind:
            content, right = rest, [last]
        elif mark := re.search(r"(?<=\w)[^\w>]+$", last.text):
            content = [*rest, _Span(last.text[: mark.start()], last.spaces)]
            right = [_Span(mark[0], _MOVED_RIGHT)]
    return left, content, right


def _is_punctuation(character: str) -> bool:
    return character != "" and not re.match(r"\w", character)


def _place_children(
    parent: Tag, aligned: Sequence[int], lo: int, hi: int, unplaced: list[str]
) -> list[tuple[int, int, Tag]]:
    """Assigns each tag inside ``parent`` a range of words of the translation; none overlap."""
    child_of: dict[int, int] = {}  # index of the pair that encloses a source word
    for i, tag in enumerate(parent.children):
        for word in range(tag.start, tag.end):
            child_of.setdefault(word, i)
    # For each pair, the longest run of target words aligned with words inside it.
    longest: dict[int, range] = {}
    run, run_child = range(0), -1
    for t in range(lo, hi):
        i = child_of.get(aligned[t], -1)
        if i < 0:
            continue
        # One word from elsewhere, often an article, does not interrupt a run.
        continues = i == run_child and t - run.stop <= 1
        run, run_child = range(run.start if continues else t, t + 1), i
        if len(run) > len(longest.get(i, ())):
            longest[i] = run
    placed = []
    for i, tag in enumerate(parent.children):
        if (tag.start, tag.end) == (parent.start, parent.end) and child_of.get(tag.start) == i:
            longest[i] = range(lo, hi)
        if i in longest:
            placed.append((longest[i].start, longest[i].stop, tag))
            continue
        if tag.start < tag.end:
            unplaced.append(tag.text)
        position = _insertion_point(tag.start, aligned, lo, hi)
        own = [t + 1 for t in range(lo, hi) if aligned[t] == tag.start - 1]
        if tag.closing is None and tag.left and not tag.spaces[0] and own:
            position = own[-1]  # right after a word, as a footnote
        elif tag.start == parent.start:
            position = lo
        elif tag.start == parent.end:
            position = hi
        inside = (run for run in longest.values() if run.start < position < run.stop)
        position = next((run.stop for run in inside), position)
        placed.append((position, position, tag))
    return sorted(placed, key=lambda place: place[:2])


def _insertion_point(word: int, aligned: Sequence[int], lo: int, hi: int) -> int:
    """The index in the translation at which to insert markup that precedes a source word."""
    for t in range(lo, hi):
        if aligned[t] == word:
            return t
    for t in reversed(range(lo, hi)):  # after the translation of the words before it
        if 0 <= aligned[t] < word:
            return t + 1
    return lo


def _space_between(left: _Span, right: _Span) -> str:
    """The space between two neighbouring spans, or none."""
    if right.glued:
        return ""
    after, before = left.spaces[1], right.spaces[0]
    if left.kind and right.kind:  # may be far apart in the line
        rule = all if left.kind == right.kind != "alone" else any
        separated = rule((after, before))
    else:  # an element is separated from the words around it
        separated = all((after or left.kind == "closing", before or right.kind == "opening"))
    return " " if separated else ""
