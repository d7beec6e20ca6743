"""Tags: symbols of the vocabulary at the start of source lines, such as ``<2fr>``.

A source line with a tag is written ``<2fr> text``. The tag is a single id, followed by the ids of
the text; only the text is normalised, cleaned, split into sentences and aligned. Whether a line
starts with a tag depends on the vocabulary: anything that is not one of its symbols is text.
"""

from collections.abc import Collection, Container, Iterable
from itertools import islice

from transformer_mt.config import DataConfig
from transformer_mt.config.source import TAG
from transformer_mt.errors import InputError, printable

_SHOWN = 12
"""Number of tags that a message names."""
UNTAGGED = "line(s) have no tag, but this model is trained with tags: set tag ({tags})"
"""Message that follows the number of ``untagged`` lines."""


def split_tag(line: str, tags: Collection[str]) -> tuple[str, str]:
    """The tag of a source line, or "", and its text."""
    match = TAG.match(line) if tags else None
    if match is None or match[0] not in tags:
        return "", line
    return match[0], line[match.end() :].removeprefix(" ")


def add_tag(tag: str, text: str) -> str:
    """The source line of a text with a tag, or with "" for none."""
    return f"{tag} {text}" if tag else text


def untagged(lines: Iterable[str], data: DataConfig, tags: Collection[str]) -> list[int]:
    """Indices of lines with text but without a tag, if all training sources have tags."""
    if not (tags and data.needs_tag):
        return []
    parts = (split_tag(line, tags) for line in lines)
    return [i for i, (tag, text) in enumerate(parts) if not tag and text.strip()]


def missing_tags(data: DataConfig, vocabulary: Container[str] = ()) -> list[str]:
    """Tags of the training sources that a vocabulary does not have."""
    tags = dict.fromkeys(source.tag for source in data.train if source.tag)
    return [tag for tag in tags if tag not in vocabulary]


def check_tag(tag: str, tags: Collection[str]) -> None:
    """Raises ``InputError`` if a tag is not in the vocabulary."""
    if tag not in tags:
        known = tag_names(tags) or "no tags at all"
        raise InputError(f"tag={tag} is not in the vocabulary: it has {known}")


def tag_names(tags: Collection[str]) -> str:
    """Some or all tags, for messages."""
    names = printable(", ".join(islice(tags, _SHOWN)))
    return names if len(tags) <= _SHOWN else f"{names} and {len(tags) - _SHOWN} more"
