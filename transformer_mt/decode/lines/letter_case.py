"""Text in capitals, title case or lower case, which is translated in its usual case.

A model knows "MAN", and often "Man", as other words than "man", or spells them letter by letter,
and translates them to nonsense. The vocabulary tells what is usual: frequent words are its pieces.
"""

import math
import re

import regex

from transformer_mt.config.languages import CAPITAL_NOUNS, base_language
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.sentences import sentence_starts

_MIN_LETTERS = 4
"""Letters of the shortest line in capitals (not TV or USA), and of words that titles capitalise."""
_COMMON = 500  # words among so many first pieces are not abbreviations, however short
_MARGIN = 2  # a joint vocabulary counts both languages: German "Man" is not English "man"
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_NOT_IN_ADDRESS = r"(?<![^\s([“„«‘¿¡\"]){}(?![\w@/(=]|[.:][\w/])"
_LETTERS = re.compile(_NOT_IN_ADDRESS.format(r"[^\W\d_]+"))
_CAPITALS = regex.compile(_NOT_IN_ADDRESS.format(r"\p{Lu}{3,}"))
_ONE_CAPITAL = regex.compile(r"[^\p{L}–—]*\p{Lu}\P{Lu}*")  # a dash begins direct speech
_CASELESS = regex.compile(r"(?![ªº])\p{Lo}")
_SENTENCE_START = regex.compile(
    r"""(?:^(?=.*[^\w'’])|(?<!\.|\.[^\W\d])(?:\.["'”’“»)\]]*|[!?](?:["'”’“»)\]]+(?=\s["'“„«»(]))?)\s)"""
    r"""\W{0,9}[^\W\d_](?![\w.-]*[@/=:]\S)"""
)  # not after "p.m." or "..."; not of an address


def usual_case(text: str, tokenizer: Tokenizer, lang: str) -> str:
    """A source text in capitals, title case or lower case as it would usually be written.

    In any other text, and in title case of languages that capitalise nouns, only words in capitals
    change whose usual form takes at most half as many pieces, and either has more than three
    letters for each of them or is a frequent word. Abbreviations rarely meet these conditions. If
    its first letter is its only capital, its other sentences get one, too.

    In capitals, each word becomes whichever has the fewest pieces or, if tied, the lowest ids: in
    lower case, with a capital first letter (names, German nouns) or in capitals. In other text, a
    word that is a single piece in either form gets a capital if that form has a lower id, and is in
    lower case otherwise; all other words stay. Of single pieces within sentences, except "I", the
    one with a capital must have less than half of the other's id. Sentences of several words start
    with a capital, but the first one of a text in lower case does not. Text with letters of a
    script that has no case stays as it is.
    """
    if _CASELESS.search(text):
        return text
    starts = {match.end() - 1 for match in _SENTENCE_START.finditer(text)}

    def place(form: str) -> float:
        return ids[0] if len(ids := tokenizer.encode(form)) == 1 else math.inf

    def margin(match: re.Match[str]) -> int:
        is_english_i = match[0] in "iI" and base_language(lang) == "en"
        return 1 if is_english_i or match.start() in starts else _MARGIN

    def best_known(match: re.Match[str]) -> str:
        forms = match[0].lower(), match[0].capitalize(), match[0]
        best = min(forms, key=lambda form: (len(ids := tokenizer.encode(form)), *ids))
        if best == forms[1] and place(best) <= place(forms[0]) < place(best) * margin(match):
            return forms[0]
        return best

    def better_known(match: re.Match[str]) -> str:
        lower, capital = place(match[0].lower()), place(match[0].capitalize())
        if match[0][1:] != match[0][1:].lower() or lower == capital:
            return match[0]
        return match[0].capitalize() if capital * margin(match) < lower else match[0].lower()

    def without_emphasis(match: re.Match[str]) -> str:
        best = best_known(match)
        ids, given = tokenizer.encode(best), tokenizer.encode(match[0])
        is_known = len(best) > 3 * len(ids) or place(best) < _COMMON
        if not is_known or len(given) < 2 * len(ids):
            return match[0]
        return best.capitalize() if match.start() in starts else best

    if text.isupper() and sum(map(str.isalpha, text)) >= _MIN_LETTERS:
        usual = _WORD.sub(best_known, text)
    else:
        text = _CAPITALS.sub(without_emphasis, text)
        if not text.islower() and (not _is_title(text) or base_language(lang) in CAPITAL_NOUNS):
            return _with_capitals(text, lang) if _ONE_CAPITAL.fullmatch(text) else text
        usual = _LETTERS.sub(better_known, text)
    return _with_capitals(usual, lang, but_first=text.islower())


def _with_capitals(text: str, lang: str, *, but_first: bool = False) -> str:
    """A text with a capital at the start of each sentence, perhaps except the first."""
    capitals = _SENTENCE_START.sub(lambda match: match[0].title(), text)
    starts = set(sentence_starts(capitals, lang)) - ({0} if but_first else set())

    def with_capital(match: regex.Match[str]) -> str:
        return match[0] if starts.isdisjoint(range(*match.span())) else match[0].title()

    return _SENTENCE_START.sub(with_capital, text)


def _is_title(text: str) -> bool:
    """Whether three words and all long ones have a capital, or a single word; two may be a name."""
    words = _WORD.findall(text)
    capitals = [word for word in words if word[0].isupper()]
    if text.isupper() or (len(capitals) < 3 and not len(capitals) == len(words) == 1):
        return False
    return all(word in capitals for word in words if len(word) >= _MIN_LETTERS)


def recased(text: str, translation: str) -> str:
    """The translation in the case of its text: in capitals, or with a capital first for a title."""
    if text.isupper():
        return translation.upper()
    return translation if text[:1].islower() else translation[:1].title() + translation[1:]
