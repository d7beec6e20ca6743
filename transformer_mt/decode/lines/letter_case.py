"""Lines in capitals, title case or lower case, which are translated in their usual case.

A model knows "MAN", and often "Man", as other words than "man", or spells them letter by letter, so
that it translates such lines to nonsense unless much of its training text was like them. What is
usual, the vocabulary tells: frequent words are single pieces, with lower ids.
"""

import re

from transformer_mt.config.languages import CAPITAL_NOUNS, base_language
from transformer_mt.data.subwords.tokenizer import Tokenizer

_MIN_LETTERS = 4
"""A line in capitals with fewer letters is more likely an abbreviation (TV, USA), or "I"; a title
may have shorter words without a capital."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LETTERS = re.compile(r"(?<![^\s([“„«‘¿¡\"])[^\W\d_]+(?![\w@/(=]|[.:][\w/])")
"""A word, but not in an address, a placeholder or a name in a program."""
_SENTENCE_START = re.compile(r"(?:^(?=.*[^\w'’])|[.!?…]\s)\W*[^\W\d_]")


def usual_case(text: str, tokenizer: Tokenizer, lang: str) -> str:
    """A source text in capitals, title case or lower case as it would usually be written.

    Any other text is returned as it is, and so is title case in languages that capitalise nouns.

    In capitals, each word becomes whichever has the fewest pieces or, if tied, the lowest ids: in
    lower case, with a capital first letter (names, German nouns, "I") or in capitals. In other
    text, the first letter of a word changes if that makes it a single piece that is better known,
    so that unknown names stay. Sentences of several words start with a capital, unless the text is
    in lower case, where most first words have one by the same rule.
    """

    def rank(form: str) -> tuple[int, ...]:
        return len(ids := tokenizer.encode(form)), *ids

    def best_known(match: re.Match[str]) -> str:
        return min((match[0].lower(), match[0].capitalize(), match[0]), key=rank)

    def better_known(match: re.Match[str]) -> str:
        word = match[0]
        other = word.capitalize() if word.islower() else word.lower()
        return other if rank(other) < min(rank(word), (2,)) and not word[1:].isupper() else word

    if text.islower():
        return _LETTERS.sub(better_known, text)
    if text.isupper() and sum(map(str.isalpha, text)) >= _MIN_LETTERS:
        usual = _WORD.sub(best_known, text)
    elif _is_title(text) and base_language(lang) not in CAPITAL_NOUNS:
        usual = _LETTERS.sub(better_known, text)
    else:
        return text
    return _SENTENCE_START.sub(lambda match: match[0].upper(), usual)


def _is_title(text: str) -> bool:
    """Whether three words and all longer ones have a capital, or a word that is the only one.

    Two are more likely a name, or a greeting and a name.
    """
    words = _WORD.findall(text)
    capitals = [word for word in words if word[0].isupper()]
    if text.isupper() or (len(capitals) < 3 and not len(capitals) == len(words) == 1):
        return False
    return all(word in capitals for word in words if len(word) >= _MIN_LETTERS)


def recased(text: str, translation: str) -> str:
    """The translation of a text's usual case: in capitals as well, or with one first as a title."""
    if text.isupper():
        return translation.upper()
    return translation if text.islower() else translation[:1].upper() + translation[1:]
