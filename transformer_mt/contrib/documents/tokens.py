"""The tokens of HTML and XML, with all characters of a document, some of which parsers drop."""

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

ATTRIBUTE = re.compile(r"""([^\s/>=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>][^\s>]*))""")
"""Name of an attribute, and its value in double, single or no quotes."""
_TOKEN = re.compile(
    r"""(?P<text>(?:[^<]+|<(?![a-z_!?/]))+)|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<!--.*?(?:-->|\Z)"""
    r"""|<(?P<code>script|style)(?:\s[^>]*)?(?<!/)>.*?(?:</(?P=code)\s*>|\Z)"""
    r"""|<(?P<closing>/?)(?P<name>[a-z_][^\s/>]*)"""
    r"""(?:[^>=]+|=\s*"[^"]*"|=\s*'[^']*'|=)*+(?:>|\Z)|<.*?(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE,
)


class Token(NamedTuple):
    """A tag, the text between two tags, or anything else, such as a comment or a script."""

    kind: str
    """``opening``, ``closing`` or ``empty`` for tags; ``text``, ``cdata`` or ``other``."""
    name: str
    """Name of the element of a tag, a script or a style sheet; otherwise empty."""
    attributes: dict[str, str]
    raw: str
    """Its characters in the document, which is the concatenation of all tokens."""


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of a document; what does not end, such as a comment, is one up to its end."""
    for match in _TOKEN.finditer(text):
        raw, name = match[0], match["name"] or match["code"] or ""
        kind = "text" if match["text"] else "other" if match["cdata"] is None else "cdata"
        if match["name"]:
            kind = "closing" if match["closing"] else "empty" if raw.endswith("/>") else "opening"
        values = ATTRIBUTE.finditer(raw) if kind in ("opening", "empty") else ()
        attributes = {each[1]: unescape(each[each.lastindex or 1]) for each in values}
        yield Token(kind, name, attributes, raw)
