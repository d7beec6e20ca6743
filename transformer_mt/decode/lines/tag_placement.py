"""Where the markup of a line goes in its translation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from transformer_mt.decode.lines.alignment import Link


@dataclass
class Tag:
    """A tag that stands alone or, with ``closing``, a pair with what is inside."""

    text: str
    first: int
    """The first source word inside; of a tag alone, the one after it."""
    end: int
    """The first source word after it."""
    space_before: bool = True
    space_after: bool = True
    touches_left: bool = False
    """Whether a character of a word touches it on the left, other tags left out."""
    touches_right: bool = False
    mark_before: bool = False
    """Whether a punctuation mark is right before it, other tags left out."""
    mark_after: bool = False
    name: str = ""
    closing: "Tag | None" = None
    inside: "list[Tag]" = field(default_factory=list)
    """In the order of the line."""


@dataclass(frozen=True)
class Marked:
    """A line without its markup, and what it takes to put that back."""

    text: str
    """What is translated: words with single spaces."""
    whole: Tag
    """A pair around all of it, without text."""
    verbatim: dict[str, tuple[str, int]]
    """For each number that stands for something else: what that is, and its source word."""
    entities: bool = False
    """Whether it spells characters as entities: then the translation has to."""


@dataclass(frozen=True)
class _Item:
    """A stretch of output, and whether a space parts it from what is left and right of it."""

    text: str
    from_word: tuple[bool, bool] = (True, True)
    from_tag: tuple[bool, bool] = (True, True)
    tag: str = ""
    """``alone``, ``opening`` or ``closing``; empty for words."""


_LEFT_EDGE, _RIGHT_EDGE = (True, False), (False, True)
"""``from_word`` of punctuation that tags part from its word."""


def put_back(source: Marked, translation: str, alignment: Sequence[Link]) -> str:
    """The translation with the markup of its line.

    Args:
        source: The line.
        translation: The translation of its text.
        alignment: For words of the translation, the source word that each comes from.
    """
    came_from = {target: word for word, target in alignment}
    words = translation.split()
    origin = [came_from.get(i, -1) for i in range(len(words))]
    _say_each_once(source, words, origin)
    items = [_Item("", (False, False)), *_render(source.whole, words, origin, 0, len(words))]
    text = ""
    for left, right in pairwise(items):
        said = right.text
        if not right.tag:  # only now, so that no punctuation was cut off a placeholder
            said = escape(said, quote=False) if source.entities else said
            for number, (what, _) in source.verbatim.items():
                said = _alone(number).sub(lambda _, what=what: what, said)  # type: ignore[misc]
        text += (" " if _parted(left, right) else "") + said
    return text


def _say_each_once(source: Marked, words: list[str], origin: list[int]) -> None:
    """Sees to it, in place, that each number that stands for something is there, and once."""
    for number, (_, word) in source.verbatim.items():
        said = [i for i, each in enumerate(words) if _alone(number).search(each)]
        if not said:
            at = _boundary(word, origin, 0, len(words))
            words.insert(at, number)
            origin.insert(at, word)
            continue
        best = next((i for i in said if origin[i] == word), said[0])
        origin[best] = word
        for i in reversed(said):
            head, *others = _alone(number).split(words[i])
            words[i] = head + (number if i == best else "") + "".join(others)
            if not words[i]:
                del words[i], origin[i]


def _alone(number: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\d){number}(?!\d)")


def _render(
    tag: Tag, words: Sequence[str], origin: Sequence[int], lo: int, hi: int
) -> Iterator[_Item]:
    """The words of the translation from ``lo`` to ``hi``, with what belongs inside a tag."""
    at = lo
    for start, end, each in _places(tag, origin, lo, hi):
        yield from map(_Item, words[at:start])
        at = end
        spaces = (each.space_before, each.space_after)
        if each.closing is None:
            yield _Item(each.text, spaces, spaces, "alone")
            continue
        inner = [*_render(each, words, origin, start, end)]
        whole = (each.first, each.end) == (tag.first, tag.end)
        left, inner, right = _edges(each, each.closing, inner, whole)
        yield from left
        yield _Item(each.text, (not left, each.space_after), spaces, "opening")
        yield from inner
        closing = each.closing
        spaces = (closing.space_before, closing.space_after)
        yield _Item(closing.text, (closing.space_before, not right), spaces, "closing")
        yield from right
    yield from map(_Item, words[at:hi])


def _edges(
    opening: Tag, closing: Tag, inner: list[_Item], whole: bool
) -> tuple[list[_Item], list[_Item], list[_Item]]:
    """Punctuation at the ends of a pair goes outside, but where the line has it inside.

    Around all that is in the pair around it (``whole``) it has to be outside in the line too.
    """
    left: list[_Item] = []
    right: list[_Item] = []
    if inner and (opening.touches_left or not (whole or opening.mark_after)):
        first, *rest = inner
        if first.from_word == _LEFT_EDGE and not first.tag:  # of a pair inside
            left, inner = [first], rest
        elif mark := re.match(r"[^\w\s<]+(?=\w)", first.text):
            left = [_Item(mark[0], _LEFT_EDGE)]
            inner = [_Item(first.text[mark.end() :], first.from_word), *rest]
    if inner and (closing.touches_right or not (whole or closing.mark_before)):
        *rest, last = inner
        if last.from_word == _RIGHT_EDGE and not last.tag:
            inner, right = rest, [last]
        elif mark := re.search(r"(?<=\w)[^\w\s>]+$", last.text):
            inner = [*rest, _Item(last.text[: mark.start()], last.from_word)]
            right = [_Item(mark[0], _RIGHT_EDGE)]
    return left, inner, right


def _places(parent: Tag, origin: Sequence[int], lo: int, hi: int) -> list[tuple[int, int, Tag]]:
    """For what is inside a tag, from which word of the translation to which; none overlap."""
    owner: dict[int, int] = {}  # which pair a source word is in
    for i, tag in enumerate(parent.inside):
        for word in range(tag.first, tag.end):
            owner.setdefault(word, i)
    longest: dict[int, range] = {}
    run, of = range(0), -1
    for t in range(lo, hi):
        i = owner.get(origin[t], -1)
        if i < 0:
            continue
        # One word from elsewhere, often an article, does not part a run.
        run, of = range(run.start if i == of and t - run.stop <= 1 else t, t + 1), i
        if len(run) > len(longest.get(i, ())):
            longest[i] = run
    placed = []
    for i, tag in enumerate(parent.inside):
        if tag.first < tag.end and (tag.first, tag.end) == (parent.first, parent.end):
            longest[i] = range(lo, hi)
        if i in longest:
            placed.append((longest[i].start, longest[i].stop, tag))
            continue
        at = _boundary(tag.first, origin, lo, hi)
        if tag.first == parent.first:
            at = lo
        elif tag.first == parent.end:
            at = hi
        at = next((run.stop for run in longest.values() if run.start < at < run.stop), at)
        placed.append((at, at, tag))
    return sorted(placed, key=lambda place: place[:2])


def _boundary(word: int, origin: Sequence[int], lo: int, hi: int) -> int:
    """Before which word of the translation something goes that stood before a source word."""
    for t in range(lo, hi):
        if origin[t] == word:
            return t
    for t in reversed(range(lo, hi)):  # after what comes from the words before it
        if 0 <= origin[t] < word:
            return t + 1
    return lo


def _parted(left: _Item, right: _Item) -> bool:
    """Whether a space goes between two stretches of output."""
    if left.tag and right.tag:
        of_both = (left.from_tag[1], right.from_tag[0])  # in the line these two may be far apart
        return all(of_both) if left.tag == right.tag != "alone" else any(of_both)
    return left.from_word[1] and right.from_word[0]
