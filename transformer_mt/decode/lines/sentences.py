"""Sentence splitting: lines of several sentences are translated sentence by sentence."""

from collections.abc import Sequence

from transformer_mt.config.languages import base_language, word_separator
from transformer_mt.data.subwords.tokenizer import one_line
from transformer_mt.data.text.tags import add_tag, split_tag
from transformer_mt.decode.lines.long_lines import TITLE
from transformer_mt.decode.lines.markup import MARKUP, MarkupTranslator
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError

_SPACES = str.maketrans(dict.fromkeys("\xa0\u1680\u202f\u205f\u3000", " "))
_SPACES |= dict.fromkeys(range(0x2000, 0x200B), " ")
"""Replaced by plain spaces: sentencex 1.0.32 panics at a full stop after one (``Plan B\\xa0.``)."""


class SentenceTranslator:
    """Splits lines into sentences, translates each on its own and joins the translations.

    A model trained on sentences tends to translate only the beginning of a paragraph. Paragraphs
    are preserved: one line in is one line out, and an empty line stays empty. Abbreviations that
    sentencex knows do not end a sentence, nor do titles and initials.

    Raises:
        InputError: sentencex is not installed.
    """

    def __init__(self, translator: Translator | MarkupTranslator):
        try:
            from sentencex import segment
        except ImportError:
            raise InputError("split=sentences needs sentencex: pip install sentencex") from None
        self._translator, self._segment = translator, segment

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line; of several sentences, the best of each."""
        split = [self._sentences(line) for line in lines]
        sentences = [sentence for line in split for sentence in line]
        translations = iter(self._translator.translate_nbest(sentences, nbest))
        return [self._join(line, [next(translations) for _ in line]) for line in split]

    def _sentences(self, line: str) -> list[str]:
        """The sentences of a line, with its tag: at least one, none blank unless it is."""
        tag, text = split_tag(one_line(line), self._translator.tokenizer.tags)
        language = base_language(self._translator.normalizer.of_tag(tag).src_lang)
        sentences, start, end = [], 0, 0
        markup = [match.span() for match in MARKUP.finditer(text)]
        for part in self._segment(language, text.translate(_SPACES)):
            end += len(part)
            word = part.rstrip().rpartition(" ")[2]
            is_title = TITLE.fullmatch(word) and word != word.lower()  # not a syllable in Korean
            in_markup = any(first < end < last for first, last in markup)  # as in an address
            if end < len(text) and (is_title or in_markup):
                continue
            sentences.append(text[start:end].strip())
            start = end
        return [add_tag(tag, sentence) for sentence in sentences if sentence] or [line]

    def _join(self, line: list[str], sentences: list[list[Translation]]) -> list[Translation]:
        if len(sentences) == 1:
            return sentences[0]
        tag, _ = split_tag(line[0], self._translator.tokenizer.tags)
        space = word_separator(self._translator.normalizer.of_tag(tag).tgt_lang)
        return [Translation.joined([best[0] for best in sentences], space)]
