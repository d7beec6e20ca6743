"""Sentence splitting: lines of several sentences are translated sentence by sentence."""

import re
from collections.abc import Sequence

from sentencex import segment

from transformer_mt.config.languages import TITLE, base_language, word_separator
from transformer_mt.contrib.documents.markup import MARKUP, is_alone
from transformer_mt.protocols import LineTranslator, Translation

_SPACE = re.compile(r"\s")
"""A space or line break of any script. sentencex sees plain spaces: 1.0.32 panics at a full stop
after a no-break space (``Plan B\\xa0.``)."""


class SentenceTranslator:
    """Splits lines into sentences, translates each on its own and joins the translations.

    A model trained on sentences tends to translate only the beginning of a paragraph. Paragraphs
    are preserved: one line in is one line out, and an empty line stays empty. Abbreviations that
    sentencex knows do not end a sentence, nor do titles and initials.
    """

    def __init__(self, translator: LineTranslator):
        self._translator = translator
        self.split_tag, self.languages = translator.split_tag, translator.languages

    def translate_nbest(self, lines: Sequence[str], nbest: int) -> list[list[Translation]]:
        """Up to ``nbest`` translations of each line; of several sentences, the best of each."""
        split = [self._sentences(line) for line in lines]
        sentences = [sentence for line in split for sentence in line]
        translations = iter(self._translator.translate_nbest(sentences, nbest))
        return [self._join(line, [next(translations) for _ in line]) for line in split]

    def _sentences(self, line: str) -> list[str]:
        """The sentences of a line, with its tag: at least one, none blank unless it is."""
        tag, text = self.split_tag(line)
        before = f"{tag} " if tag else ""
        sentences = split_sentences(text, self.languages(tag)[0])
        return [before + sentence for sentence in sentences] or [line]

    def _join(self, line: list[str], sentences: list[list[Translation]]) -> list[Translation]:
        if len(sentences) == 1:
            return sentences[0]
        tag, _ = self.split_tag(line[0])
        space = word_separator(self.languages(tag)[1])
        return [Translation.joined([best[0] for best in sentences], space)]


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text in this language, without the spaces around them; none is blank.

    No sentence ends inside an element, a placeholder or an address. sentencex sees the text without
    tags; those that close at the end of a sentence belong to it.
    """
    plain, positions = "", list[int]()  # in the text, of each character
    tags, unbreakable = _tags(text)
    start = 0
    for tag in [*tags, None]:
        end = tag.start() if tag else len(text)
        plain += text[start:end]
        positions += range(start, end)
        if tag and is_alone(tag):  # <br> separates words
            plain += " "
            positions.append(tag.end() - 1)
        start = tag.end() if tag else end
    closing = {tag.start(): tag.end() for tag in tags if tag["closes"]}
    sentences, start, length = list[str](), 0, 0
    for part in segment(base_language(language), _SPACE.sub(" ", plain)):
        length += len(part)
        end = positions[length - 1] + 1
        while end in closing:
            end = closing[end]
        word = part.rstrip().rpartition(" ")[2]
        is_title = TITLE.fullmatch(word) and word != word.lower()  # not a syllable in Korean
        if length == len(plain):
            end = len(text)
        elif is_title or any(first < end < last for first, last in unbreakable):
            continue
        sentences.append(text[start:end].strip())
        start = end
    return [sentence for sentence in sentences if sentence]


def _tags(text: str) -> tuple[list[re.Match[str]], list[tuple[int, int]]]:
    """The tags of a text, and the ranges of its elements and of other markup, such as addresses."""
    tags, ranges, opened = list[re.Match[str]](), list[tuple[int, int]](), list[re.Match[str]]()
    for match in MARKUP.finditer(text):
        if not (match["name"] or match["alone"]):
            ranges.append(match.span())
            continue
        tags.append(match)
        if match["closes"]:
            names = [tag["name"] for tag in opened]
            if match["name"] in names:
                del opened[len(names) - names[::-1].index(match["name"]) :]
                ranges.append((opened.pop().start(), match.end()))
        elif not is_alone(match):
            opened.append(match)
    return tags, ranges
