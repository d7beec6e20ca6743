"""PO files of gettext: which messages are translated, and where their translations go."""

import gettext
import re
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import polib

from transformer_mt import InputError
from transformer_mt.config import TranslateJob
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import FAILED, UNPLACED, decode, list_places
from transformer_mt.contrib.documents.markup import Unplaced, is_usable
from transformer_mt.protocols import TranslatedDocument

_LINE = re.compile(r"((?=.*[^\W\d_])\S(?:.*\S)?)")
"""A line of a message that has a letter, without the spaces around it."""
_MESSAGE = re.compile(r'\A.*^[ \t]*(?:msgstr|").*?(?=\s*?$)', re.DOTALL | re.MULTILINE)
"""A message with the comments before it, to the end of its last line."""
_COMMENT = re.compile(r"^(?:#(?![,|~]).*)?\n", re.MULTILINE)
"""A comment, a reference or an empty line, but neither flags nor the previous text."""
_UNCLOSED = re.compile(r'^\s*(?:msg\S+\s+)?"(?:[^"\\\n]|\\.)*$', re.MULTILINE)
"""A line whose quote is not closed; polib would cut off its last character."""
_PLURAL_FORMS = re.compile(r"\s*nplurals\s*=\s*(\d)\b\s*(?:;\s*plural\s*=\s*([^;]+))?")
"""Number of plural forms, and the expression that numbers them."""


class PoDocument:
    """A PO file; messages without a translation, or with a fuzzy one, are translated.

    All others stay byte for byte.
    """

    def __init__(self, job: TranslateJob) -> None:
        self._fuzzy, self.unplaced = job.fuzzy, list[Unplaced]()
        self._open = list[tuple[int, Any, dict[int, list[str]]]]()

    def read(self, content: bytes, src_lang: str, tgt_lang: str) -> list[str]:
        """The lines of the messages to translate."""
        text = decode(content)
        try:
            messages = polib.pofile(f"{text}\n")  # with which it is no path
        except OSError as error:
            raise InputError(str(error)) from None
        if unclosed := _UNCLOSED.search(text):
            raise InputError(f"line {len(text[: unclosed.end()].splitlines())}: close the quote")
        header = messages.metadata
        charset = header.get("Content-Type", "").rpartition("charset=")[2]
        if charset.lower() not in ("", "charset", "utf-8", "utf8"):  # CHARSET: of a template
            raise InputError(f"charset={charset}: convert it with msgconv --to-code=UTF-8")
        language = header.get("Language") or tgt_lang
        if not may_be_same_language(language, tgt_lang):
            raise InputError(f"Language is {language}, but the model translates to {tgt_lang}")
        match = _PLURAL_FORMS.match(header.get("Plural-Forms", ""))
        num_forms, expression = match.groups() if match else ("2", None)
        try:
            form_for_one = gettext.c2py(expression or "n != 1")(1)
        except ValueError as error:
            raise InputError(f"Plural-Forms: {error}") from None
        lines = text.splitlines(keepends=True)
        starts = [max(0, message.linenum - 1) for message in messages]  # 0: without a header
        self._blocks = ["".join(lines[a:b]) for a, b in pairwise([0, *starts, len(lines)])]
        for number, message in enumerate(messages, 1):  # of its block
            texts = _open_texts(message, int(num_forms), form_for_one)
            forms = {form: _LINE.split(text) for form, text in texts.items()}
            self._open += [(number, message, forms)] if forms else []
        return [each for *_, forms in self._open for part in forms.values() for each in part[1::2]]

    def write(self, translations: Sequence[str]) -> TranslatedDocument:
        """The file with translations of its messages, fuzzy or not as the job says."""
        remaining, blocks, failed = iter(translations), [*self._blocks], list[int]()
        unplaced = list[str]()
        for number, message, forms in self._open:
            usable = True
            for parts in forms.values():
                lines = parts[1::2]
                parts[1::2] = islice(remaining, len(lines))
                usable &= all(map(is_usable, lines, parts[1::2]))
                unplaced += [
                    f"{each.markup} in line {message.linenum}"
                    for each in self.unplaced
                    if any(each.line in line for line in lines)
                ]
            if not usable:
                failed.append(message.linenum)
                continue
            if message.msgid_plural:
                message.msgstr_plural |= {form: "".join(parts) for form, parts in forms.items()}
            else:
                message.msgstr = "".join(forms[0])
            message.fuzzy = self._fuzzy
            message.previous_msgctxt = message.previous_msgid = message.previous_msgid_plural = None
            message.comment, message.tcomment, message.occurrences = "", "", []  # they stay
            before = blocks[number]
            after = str(message).rstrip().replace("\n", "\r\n" if "\r\n" in before else "\n")
            rest = _MESSAGE.sub("", before)
            blocks[number] = "".join(_COMMENT.findall(before.removesuffix(rest))) + after + rest
        warnings = list_places(UNPLACED, [*dict.fromkeys(unplaced)], str)
        warnings += list_places(FAILED, failed, "line {}".format)
        done = len(self._open) - len(failed)
        return TranslatedDocument("".join(blocks).encode(), done, warnings)


def _open_texts(message: Any, num_forms: int, form_for_one: int) -> dict[int, str]:
    """The texts of a message that need a translation, by plural form."""
    if message.obsolete:
        return {}
    texts, given = [message.msgid], message.msgstr_plural or {0: message.msgstr}
    if message.msgid_plural:  # a single form is the plural
        one = form_for_one if num_forms > 1 else None
        texts = [message.msgid if i == one else message.msgid_plural for i in range(num_forms)]
    return {i: text for i, text in enumerate(texts) if text and (message.fuzzy or not given.get(i))}
