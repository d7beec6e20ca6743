"""Noise as users type it: capitals, missing final marks, other quotes, typing errors, emoji.

Training adds some of it to some pairs (``data.augment``), ``noise_scores`` all of it to all lines
of a test set. Each function maps a pair of texts without a tag to a pair; it adds no line break and
leaves no text empty. None depends on the language. What a translation keeps, such as capitals and
final marks, changes on both sides; other noise is on the source only.
"""

import math
import re
from collections.abc import Mapping
from functools import partial
from itertools import compress

import numpy as np

from transformer_mt.protocols import Pair, PairNoise

_WORDS_PER_ERROR = 10

_QUOTES = ("“”", "„“", "«»", "””")
"""Opening and closing double quotes: English, German, French, Swedish."""

_FIRST_LETTER = re.compile(r"(?<!\S)[^\w\s]*[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_FINAL_MARKS = re.compile(r"[\s.!?…。！？।؟]+$")
_OPENING = re.compile(r'(?<![^\s([{])"(?=\S)')


def upper_case(pair: Pair, _: np.random.Generator) -> Pair:
    """Both sides in capitals; neither if the source stays the same, or has letters without case."""
    src, tgt = (text.upper() for text in pair)
    has_case = all(letter.upper() != letter.lower() for letter in filter(str.isalpha, src))
    return Pair(src, tgt) if has_case and src != pair.src else pair


def title_case(pair: Pair, _: np.random.Generator) -> Pair:
    """A source in which each word has a capital, even within quotes; other letters stay."""
    return pair._replace(src=_FIRST_LETTER.sub(lambda match: match[0].title(), pair.src))


def no_final_punctuation(pair: Pair, _: np.random.Generator) -> Pair:
    """Both sides without the marks that end them, unless one has none, or nothing else."""
    src, tgt = (_FINAL_MARKS.sub("", text) for text in pair)
    return Pair(src, tgt) if src not in ("", pair.src) and tgt not in ("", pair.tgt) else pair


def typographic_quotes(pair: Pair, rng: np.random.Generator) -> Pair:
    """A source with typographic quotes and apostrophes, in the style of a random language."""
    style = _QUOTES[rng.integers(len(_QUOTES))]
    text = _OPENING.sub(style[0], pair.src).replace('"', style[1])
    return pair._replace(src=text.replace("'", "’"))


def typing_errors(pair: Pair, rng: np.random.Generator) -> Pair:
    """A source with an error in every tenth word of two letters or more, rounded up.

    A letter is swapped with the next, left out, doubled, or replaced by another of the text.
    """
    text = pair.src
    words = [word for word in _WORD.finditer(text) if word[0].isalpha()]  # not H₂O, m²
    letters = "".join(word[0] for word in words)
    wrong_words = rng.permutation(len(words))[: math.ceil(len(words) / _WORDS_PER_ERROR)]
    for i in sorted(wrong_words.tolist(), reverse=True):  # places of earlier ones stay valid
        at = words[i].start() + int(rng.integers(len(words[i][0]) - 1))
        first, second = text[at], text[at + 1]
        other = letters[rng.integers(len(letters))]
        pairs = second + first, second, first + first + second, other + second
        wrong = [pair for pair in pairs if pair != first + second]
        text = text[:at] + wrong[rng.integers(len(wrong))] + text[at + 2 :]
    return pair._replace(src=text)


def lower_case(pair: Pair, _: np.random.Generator) -> Pair:
    """A source in lower case."""
    return pair._replace(src=pair.src.lower())


def emphasis(pair: Pair, rng: np.random.Generator) -> Pair:
    """A source with a word of four letters or more in capitals, if it has one in lower case."""
    words = [w for w in re.finditer(r"(?<!\w)[^\W\d_]{4,}(?!\w)", pair.src) if w[0].islower()]
    if not words:
        return pair
    word = words[rng.integers(len(words))]
    start, end = word.span()
    return pair._replace(src=pair.src[:start] + word[0].upper() + pair.src[end:])


def emoji(pair: Pair, _: np.random.Generator) -> Pair:
    """Both sides with an emoji at the end, unless one is blank."""
    return Pair(*(f"{text} 😀" for text in pair)) if all(map(str.strip, pair)) else pair


def list_item(pair: Pair, _: np.random.Generator) -> Pair:
    """Both sides as an item of a list, unless one is blank."""
    return Pair(*(f"- {text}" for text in pair)) if all(map(str.strip, pair)) else pair


NOISES: dict[str, PairNoise] = {
    noise.__name__: noise
    for noise in (
        *(upper_case, title_case, no_final_punctuation, typographic_quotes, typing_errors),
        *(lower_case, emphasis, emoji, list_item),
    )
}
"""All kinds, by name."""

RATES = {
    # Case as in the training of Firefox's models (OpusTrainer).
    "upper_case": 0.07,
    "title_case": 0.05,
    "no_final_punctuation": 0.2,
    "typographic_quotes": 0.05,
    "typing_errors": 0.05,
}
"""Share of the pairs that get each kind in training, in the order in which they are added."""


def some_noise(pair: Pair, rng: np.random.Generator, rates: Mapping[str, float] = RATES) -> Pair:
    """Each kind on some pairs, independently of the others: ``data.augment=standard``."""
    drawn = rng.random(len(RATES)) < [rates.get(name, 0) for name in RATES]
    for name in compress(RATES, drawn):
        pair = NOISES[name](pair, rng)
    return pair


less_punctuation = partial(some_noise, rates={"no_final_punctuation": 0.1})
"""No final marks on some pairs: ``data.augment=punctuation``."""
