"""PO files of gettext: which messages are translated, and where their translations go."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from transformer_mt import InputError, Translator
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import FAILED, UNPLACED, decode, list_places
from transformer_mt.contrib.documents.markup import MarkupTranslator
from transformer_mt.protocols import TranslatedDocument

_LINE = re.compile(r"(?=.*[^\W\d_])\S(?:.*\S)?")
"""A line of a message that has a letter, without the spaces around it."""
_NUM_FORMS = re.compile(r"\s*nplurals\s*=\s*(\d)\b")


class PoDocument:
    """A PO file; messages without a translation, or with a fuzzy one, are translated."""

    def __init__(self) -> None:
        try:
            import polib
        except ImportError:
            raise InputError("format=po needs polib: pip install polib") from None
        self._parse, self._unplaced = polib.pofile, list[str]()

    def wrap(self, translator: Translator) -> MarkupTranslator:
        """What keeps placeholders, tags and addresses."""
        return MarkupTranslator(translator, self._unplaced)

    def read(self, content: bytes, src_lang: str, tgt_lang: str) -> list[str]:
        """The lines of the messages to translate."""
        text, _ = decode(content)
        try:
            self._messages = self._parse(f"{text}\n")  # with which it is no path
        except OSError as error:
            raise InputError(str(error)) from None
        language = self._messages.metadata.get("Language") or tgt_lang
        if not may_be_same_language(language, tgt_lang):
            raise InputError(f"Language is {language}, but the model translates to {tgt_lang}")
        match = _NUM_FORMS.match(self._messages.metadata.get("Plural-Forms", ""))
        self._num_forms = int(match[1]) if match else 2
        self._source = text.splitlines(keepends=True)
        return [line for message in self._messages for line in _lines(self._texts(message))]

    def _texts(self, message: Any) -> dict[int, str]:
        """The texts of a message to translate, by their plural forms."""
        if message.obsolete or message.translated() or not message.msgid:
            return {}
        if not message.msgid_plural:
            return {0: message.msgid}
        texts = [message.msgid if self._num_forms > 1 else message.msgid_plural]
        texts += [message.msgid_plural] * (self._num_forms - 1)
        given = {} if message.fuzzy else message.msgstr_plural
        return {form: text for form, text in enumerate(texts) if not given.get(form)}

    def write(self, translations: Sequence[str]) -> TranslatedDocument:
        """The file with translations of its messages, which are no longer fuzzy."""
        remaining, number, failed = iter(translations), 0, list[int]()
        starts = [message.linenum - 1 for message in self._messages]
        output = self._source[: starts[0] if starts else None]
        for message, (start, end) in zip(self._messages, pairwise([*starts, None]), strict=True):
            block, given = "".join(self._source[start:end]), self._texts(message)
            forms = {i: _LINE.sub(lambda _: next(remaining), text) for i, text in given.items()}
            if len(_lines(forms)) < len(_lines(given)):
                failed.append(message.linenum)
            elif forms:
                number += 1
                message.fuzzy = False
                if message.msgid_plural:
                    message.msgstr_plural |= forms
                else:
                    message.msgstr = forms[0]
                newline = "\r\n" if "\r\n" in block else "\n"
                block = str(message).rstrip().replace("\n", newline) + block[len(block.rstrip()) :]
            output.append(block)
        warnings = list_places(UNPLACED, self._unplaced, str)
        warnings += list_places(FAILED, failed, "line {}".format)
        return TranslatedDocument("".join(output).encode(), number, warnings)


def _lines(texts: dict[int, str]) -> list[str]:
    return [line for text in texts.values() for line in _LINE.findall(text)]
