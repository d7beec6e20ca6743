"""Lines of several sentences, translated sentence by sentence."""

from collections.abc import Sequence

from transformer_mt.data.subwords.tokenizer import one_line
from transformer_mt.data.text.languages import UNSPACED, base_language
from transformer_mt.decode.lines.markup import MARKUP, MarkupTranslator
from transformer_mt.decode.translator import Translation, Translator
from transformer_mt.errors import InputError

_SPACES = str.maketrans(dict.fromkeys("\xa0\u1680\u202f\u205f\u3000", " "))
_SPACES |= dict.fromkeys(range(0x2000, 0x200B), " ")
"""sentencex 1.0.32 panics where such a space is followed by a full stop, as in ``Plan B\\xa0.``."""


class SentenceTranslator:
    """Cuts lines into sentences, has each translated by itself, and joins them again.

    A model is trained on sentences: of a paragraph it tends to translate the beginning. Paragraphs
    stay, because a line stays a line and an empty one stays empty.

    Args:
        translator: Translates sentences.
        src_lang: Language of the lines; its abbreviations end no sentence.
        tgt_lang: Language of the translations.

    Raises:
        InputError: sentencex is not installed.
    """

    def __init__(self, translator: Translator | MarkupTranslator, src_lang: str, tgt_lang: str):
        try:
            from sentencex import segment
        except ImportError:
            raise InputError(
                "split=sentences needs sentencex: pip install 'transformer-mt[sentences]'"
            ) from None
        self._translator, self._segment, self._src_lang = translator, segment, src_lang
        self._space = "" if base_language(tgt_lang) in UNSPACED else " "

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line; of several sentences, the best of each."""
        cut = [self._sentences(line) for line in lines]
        found = iter(self._translator.translate_nbest([s for own in cut for s in own], nbest))
        return [self._join([next(found) for _ in own]) for own in cut]

    def _sentences(self, line: str) -> list[str]:
        """The sentences of a line; at least one, and none of them blank unless the line is."""
        text = one_line(line)
        sentences, begun, end = [], 0, 0
        markup = [match.span() for match in MARKUP.finditer(text)]
        for part in self._segment(self._src_lang, text.translate(_SPACES)):
            end += len(part)
            if any(first < end < last for first, last in markup):
                continue  # the full stop of an address ends no sentence
            sentences.append(text[begun:end].strip())
            begun = end
        return [sentence for sentence in sentences if sentence] or [line]

    def _join(self, sentences: list[list[Translation]]) -> list[Translation]:
        if len(sentences) == 1:
            return sentences[0]
        return [Translation.joined([best[0] for best in sentences], self._space)]
