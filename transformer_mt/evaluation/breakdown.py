"""Groups of sentences by length, and word-by-word differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

GROUPS = 5
"""Maximum number of groups that sentences are divided into, of about equal size."""


@dataclass(frozen=True)
class Group:
    """Sentences with a common property, such as similar length."""

    label: str
    lines: list[int]
    """Indices of the sentences, from 0."""


class Change(NamedTuple):
    """A run of words in the comparison of two texts."""

    kind: str
    """``same``, ``only_old`` or ``only_new``."""
    text: str


def by_length(lines: Sequence[str]) -> list[Group]:
    """Groups of sentences from short to long, in words, or in characters if there are no spaces."""
    words = [len(line.split()) for line in lines]
    characters = [len(line) for line in lines]
    sparse = sum(words) * 20 < sum(characters)
    lengths, unit = (characters, "characters") if sparse else (words, "words")
    edges = np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)[1:-1])
    parts = np.digitize(lengths, edges, right=True)  # equal lengths share a part
    groups = []
    for part in np.unique(parts):
        indices = np.flatnonzero(parts == part).tolist()
        inside = [lengths[i] for i in indices]
        first, last = min(inside), max(inside)
        groups.append(Group(f"{first}–{last}" if first != last else f"{first}", indices))
    if groups:
        groups[-1] = Group(f"{groups[-1].label} {unit}", groups[-1].lines)
    return groups


def changes(old: str, new: str) -> list[Change]:
    """Word-by-word difference of two texts, from left to right."""
    before, after = old.split(), new.split()
    result = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            result.append(Change("same", " ".join(after[k:m])))
            continue
        if i < j:
            result.append(Change("only_old", " ".join(before[i:j])))
        if k < m:
            result.append(Change("only_new", " ".join(after[k:m])))
    return result
