"""A translator that puts words in capitals, for documents whose translation is to be read."""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TypeVar, cast

from transformer_mt.config import DataConfig, TranslateJob
from transformer_mt.contrib.documents.document import MarkupDocument
from transformer_mt.contrib.documents.markup import MarkupTranslator
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.translator import Translator
from transformer_mt.protocols import Translation

Parsed = TypeVar("Parsed", bound=MarkupDocument)


class Capitals:
    """Translates word by word; ``reverse`` also turns the order of words round."""

    cut_lines = short_translations = 0
    engine = SimpleNamespace(name="torch", compute_type="float32")

    class _Vocabulary:
        tags: Sequence[str] = ()

        def encode(self, *_: object) -> list[int]:
            return [4]

        encode_source = encode

        def normalize(self, line: str) -> str:
            return line

    def __init__(self, *, reverse: bool = False) -> None:
        self.tokenizer = cast(Tokenizer, self._Vocabulary())
        self.normalizer = Normalizer(DataConfig(src_lang="en", tgt_lang="de"))
        self._step = -1 if reverse else 1

    def with_tag(self, lines: Sequence[str], tag: str | None) -> list[str]:
        assert tag is None
        return list(lines)

    def split_tag(self, line: str) -> tuple[str, str]:
        return "", line

    def translate_nbest(
        self, lines: Sequence[str], nbest: int, *, align: bool = False
    ) -> list[list[Translation]]:
        return [[self._translate(line)] * nbest for line in lines]

    def _translate(self, line: str) -> Translation:
        words = line.upper().split(" ")  # no-break spaces belong to words
        order = list(enumerate(range(len(words))))
        links = [(word, len(words) - 1 - i if self._step < 0 else i) for word, i in order]
        return Translation(" ".join(words[:: self._step]), 0.0, 0, alignment=links)


def parsed(format: type[Parsed], text: str, src_lang: str = "en", tgt_lang: str = "de") -> Parsed:
    """A document of this text."""
    document = format(TranslateJob(model="unused"))
    document.parse(text, src_lang, tgt_lang)
    return document


def capitals(document: MarkupDocument, *, reverse: bool = False) -> str:
    """A document with the words of its units in capitals."""
    inner = cast(Translator, Capitals(reverse=reverse))
    translator = MarkupTranslator(inner, document.unplaced)
    lines = [unit.line for unit in document.units]
    best = translator.translate_nbest(lines, 1)
    text, failed = document.translated([translations[0].text for translations in best])
    assert not failed
    return text


def tags(text: str) -> list[str]:
    """The tags of a document, in alphabetical order, without the values of attributes."""
    return sorted(re.findall(r"</?[A-Za-z][\w:-]*", text))
