"""Files that translators work on: PO of gettext, and XLIFF 1.2 and 2.

A pair is a text with a finished translation, neither fuzzy nor waiting for a review. A file in the
other direction is turned round. A whole file is in memory.
"""

import gettext
import re
from collections.abc import Iterable, Iterator, Mapping
from xml.etree.ElementTree import Element, ParseError, fromstring

import polib

from transformer_mt import InputError
from transformer_mt.config import SourceConfig
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.corpora.tmx import log_once, one_line
from transformer_mt.protocols import Pair, ReadBlocks

_PLURAL = re.compile(r"\bplural\s*=\s*([^;]+)")
"""The expression that numbers the plural forms, in the header of a PO file."""
_UNCLOSED = re.compile(r'^\s*(?:msg\S+\s+)?"(?:[^"\\\n]|\\.)*$', re.MULTILINE)
"""A line of a PO file whose quote is not closed; polib would cut off its last character."""
_UNFINISHED = re.compile("initial|new|needs-.*")
"""States of a translation in XLIFF."""
_CODE = {"bpt", "ept", "it", "ph", "x", "bx", "ex"}
"""Inline elements of XLIFF that stand for code."""
_PLACEHOLDER = re.compile(r"[$#%]?\{+[^{}]+\}+|%(\(\w+\)|\d+\$)?[-+#0]*\d*(\.\d+)?[A-Za-z@]")
"""Code that stands for a word, such as ``{name}`` and ``%1$s``."""


def read_po(
    source: SourceConfig, src_lang: str, tgt_lang: str, read_blocks: ReadBlocks
) -> Iterator[Pair]:
    """Yields the translated messages of a PO file.

    The singular of a message translates to the plural form for one, its plural to all other forms.
    """
    path, pairs = source.name, list[tuple[str, str]]()
    try:
        text = b"".join(read_blocks(path)).decode("utf-8-sig")
        messages = polib.pofile(f"{text}\n")  # with which it is no path
        plural = _PLURAL.search(messages.metadata.get("Plural-Forms", ""))
        if unclosed := _UNCLOSED.search(text):
            raise ValueError(f"line {len(text[: unclosed.end()].splitlines())}: close the quote")
        form_for_one = gettext.c2py(plural[1])(1) if plural else 0
    except UnicodeDecodeError:
        raise InputError(f"{path}: not valid UTF-8: convert it with msgconv -t UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    for message in (each for each in messages if not each.obsolete):
        forms = message.msgstr_plural or {form_for_one: message.msgstr}
        for form, translation in forms.items():
            is_plural = message.msgid_plural and (form != form_for_one or len(forms) == 1)
            text = message.msgid_plural if is_plural else message.msgid
            pairs.append((text, translation * message.translated()))
    languages = None, messages.metadata.get("Language")
    yield from _finished(path, pairs, _is_reversed(path, languages, (src_lang, tgt_lang)))


def read_xliff(
    source: SourceConfig, src_lang: str, tgt_lang: str, read_blocks: ReadBlocks
) -> Iterator[Pair]:
    """Yields the translated segments of an XLIFF file, without code other than placeholders."""
    path = source.name
    try:
        root = fromstring(b"".join(read_blocks(path)))
    except (ParseError, ValueError, LookupError) as error:  # or of an unknown encoding
        raise InputError(f"{path}: not well-formed XML: {error}") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    if root.tag != "xliff":
        raise InputError(f"{path}: not XLIFF: the root element is <{root.tag}>")
    for file in root.iterfind("file"):
        declared = (  # of XLIFF 1.2, of 2
            file.get("source-language") or root.get("srcLang"),
            file.get("target-language") or root.get("trgLang"),
        )
        is_reversed = _is_reversed(path, declared, (src_lang, tgt_lang))
        yield from _finished(path, _segments(file, root.get("translate", "yes"), {}), is_reversed)


def _segments(
    element: Element, translate: str, codes: Mapping[str | None, str | None]
) -> Iterator[tuple[str, str]]:
    """The segments in an element, each with its translation, or "" if that is not finished."""
    translate = element.get("translate", translate)
    codes = {data.get("id"): data.text for data in element.iterfind("originalData/data")} or codes
    if element.tag not in ("trans-unit", "segment"):
        for child in element:
            yield from _segments(child, translate, codes)
        return
    source, target = element.find("source"), element.find("target")
    if source is None or translate == "no":
        return
    state = "" if target is None else target.get("state") or element.get("state") or ""
    if target is None or element.get("approved") == "no" or _UNFINISHED.fullmatch(state):
        yield "".join(_texts(source, codes)), ""
        return
    sources, targets = (  # the segments that are marked in them
        {mark.get("mid"): mark for mark in element.iterfind(f"{name}//mrk[@mtype='seg']")}
        for name in ("seg-source", "target")
    )
    if not (sources and targets):
        sources, targets = {None: source}, {None: target}
    for mid, text in sources.items():
        translation = _texts(targets[mid], codes) if mid in targets else ()
        yield "".join(_texts(text, codes)), "".join(translation)


def _texts(element: Element, codes: Mapping[str | None, str | None]) -> Iterator[str]:
    """The text of an element in pieces; of code, only placeholders."""
    yield element.text or ""
    for child in element:
        if child.tag in _CODE:
            attributes = child.get("equiv-text"), child.get("disp"), codes.get(child.get("dataRef"))
            code = next(filter(None, (child.text, *attributes)), "").strip()
            yield code if _PLACEHOLDER.fullmatch(code) else ""
        else:
            yield from _texts(child, codes)
        yield child.tail or ""


def _is_reversed(
    path: str, declared: tuple[str | None, str | None], languages: tuple[str, str]
) -> bool:
    """Whether a file that declares these languages translates from the target to the source."""
    for is_reversed, pair in enumerate((languages, languages[::-1])):
        both = zip(declared, pair, strict=True)
        if all(not code or may_be_same_language(code, lang) for code, lang in both):
            return bool(is_reversed)
    given = " and ".join(filter(None, declared))
    raise InputError(f"{path}: is in {given}, not in {' and '.join(languages)}")


def _finished(path: str, texts: Iterable[tuple[str, str]], is_reversed: bool) -> Iterator[Pair]:
    """Pairs of the texts that have a translation; the others are counted."""
    num_skipped = 0
    for text, translation in texts:
        pair = Pair(one_line(text), one_line(translation))
        if all(side.strip() for side in pair):
            yield Pair(*pair[::-1]) if is_reversed else pair
        else:
            num_skipped += 1
    if num_skipped:
        log_once(f"{path}: {num_skipped:,} text(s) without a finished translation are skipped")
