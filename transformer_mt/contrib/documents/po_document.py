"""PO files of gettext: which messages are translated, and where their translations go."""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

from transformer_mt import InputError, Translator
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.contrib.documents.document import FAILED, UNPLACED, list_places
from transformer_mt.contrib.documents.markup import MarkupTranslator
from transformer_mt.protocols import TranslatedDocument

_LINE = re.compile(r"(?=.*[^\W\d_])\S(?:.*\S)?")
"""A line of a message that has a letter, without the spaces around it."""
_NUM_FORMS = re.compile(r"\s*nplurals\s*=\s*(\d)\b")


class PoDocument:
    """A PO file; messages without a translation, or with a fuzzy one, are translated.

    All others stay byte for byte.

    Raises:
        InputError: polib is not installed.
    """

    def __init__(self) -> None:
        try:
            import polib
        except ImportError:
            raise InputError("format=po needs polib: pip install polib") from None
        self._parse, self._unplaced = polib.pofile, list[str]()

    def wrap(self, translator: Translator) -> MarkupTranslator:
        """A wrapper of the translator that keeps placeholders, tags and addresses."""
        return MarkupTranslator(translator, self._unplaced)

    def read(self, content: bytes, src_lang: str, tgt_lang: str) -> list[str]:
        """The lines of the messages to translate.

        Raises:
            InputError: The file is damaged, not in UTF-8, or for another language.
        """
        try:
            text = content.decode()
            self._messages = self._parse(f"{text}\n")  # with which it is no path
        except UnicodeDecodeError:
            raise InputError("not valid UTF-8: convert it with msgconv --to-code=UTF-8") from None
        except OSError as error:
            raise InputError(str(error)) from None
        header = self._messages.metadata
        charset = header.get("Content-Type", "").rpartition("charset=")[2]
        if charset.lower() not in ("", "charset", "utf-8", "utf8"):  # CHARSET: of a template
            raise InputError(f"charset={charset}: convert it with msgconv --to-code=UTF-8")
        language = header.get("Language") or tgt_lang
        if not may_be_same_language(language, tgt_lang):
            raise InputError(f"Language is {language}, but the model translates to {tgt_lang}")
        self._source = text.splitlines(keepends=True)
        match = _NUM_FORMS.match(header.get("Plural-Forms", ""))
        self._num_forms = int(match[1]) if match else 2
        texts = [each for message in self._messages for each in self._texts(message).values()]
        return [line for text in texts for line in _LINE.findall(text)]

    def _texts(self, message: Any) -> dict[int, str]:
        """The texts of a message to translate, by their plural forms."""
        if message.obsolete or message.translated():
            return {}
        if not message.msgid_plural:
            return {0: message.msgid} if message.msgid else {}
        texts = dict.fromkeys(range(self._num_forms), message.msgid_plural)
        if self._num_forms > 1:
            texts[0] = message.msgid
        given = {} if message.fuzzy else message.msgstr_plural
        return {form: text for form, text in texts.items() if text and not given.get(form)}

    def write(self, translations: Sequence[str]) -> TranslatedDocument:
        """The file with translations of its messages, which are no longer fuzzy."""
        remaining, number, failed = iter(translations), 0, list[int]()

        def translated(text: str) -> str:  # empty if a line of it has no translation
            found = list(islice(remaining, len(_LINE.findall(text))))
            lines = iter(found)
            return _LINE.sub(lambda _: next(lines), text) if all(found) else ""

        starts = [max(0, message.linenum - 1) for message in self._messages]  # 0: without header
        output = self._source[: starts[0] if starts else None]
        blocks = pairwise([*starts, None])
        for message, (start, end) in zip(self._messages, blocks, strict=True):
            block = "".join(self._source[start:end])
            forms = {form: translated(text) for form, text in self._texts(message).items()}
            if not all(forms.values()):
                failed.append(message.linenum)
            elif forms:
                number += 1
                if message.msgid_plural:
                    message.msgstr_plural |= forms
                else:
                    message.msgstr = forms[0]
                message.fuzzy = False
                message.previous_msgctxt = message.previous_msgid = None
                message.previous_msgid_plural = None
                newline = "\r\n" if "\r\n" in block else "\n"
                block = str(message).rstrip().replace("\n", newline) + block[len(block.rstrip()) :]
            output.append(block)
        warnings = list_places(UNPLACED, self._unplaced, str)
        warnings += list_places(FAILED, failed, "line {}".format)
        return TranslatedDocument("".join(output).encode(), number, warnings)
