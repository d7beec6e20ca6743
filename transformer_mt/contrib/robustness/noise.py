"""Noise as users type it: capitals, missing final marks, other quotes, typing errors, blanks.

Training adds it to some sources (``data.augment``), ``noise_scores`` to all lines of a
test set. Each function maps a text without its tag to a text; it adds no line break and leaves no
text empty. None depends on the language.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np

_WORDS_PER_ERROR = 10
_BLANKS_PER_EXTRA = 5

_QUOTES = ("“”", "„“", "«»", "””")
"""Opening and closing double quotes: English, German, French, Swedish."""

_FIRST_LETTER = re.compile(r"(?<!\S)[^\w\s]*[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_FINAL_MARKS = re.compile(r"[\s.!?…。！？।؟]+$")
_OPENING = re.compile(r'(?<![^\s([{])"(?=\S)')
_MARKS = re.compile(r"(?<=\w)(?=[,.;:!?…]+(?:\s|$))")
"""Before the punctuation marks that end a word."""


def upper_case(text: str, _: np.random.Generator) -> str:
    """The text in capitals."""
    return text.upper()


def title_case(text: str, _: np.random.Generator) -> str:
    """Each word with a capital first letter, even within quotes; other letters stay."""
    return _FIRST_LETTER.sub(lambda match: match[0].title(), text)


def no_final_punctuation(text: str, _: np.random.Generator) -> str:
    """The text without the marks that end it, unless there is nothing else."""
    return _FINAL_MARKS.sub("", text) or text


def typographic_quotes(text: str, rng: np.random.Generator) -> str:
    """The text with typographic quotes and apostrophes, in the style of a random language."""
    style = _QUOTES[rng.integers(len(_QUOTES))]
    return _OPENING.sub(style[0], text).replace('"', style[1]).replace("'", "’")


def typing_errors(text: str, rng: np.random.Generator) -> str:
    """One error in every tenth word of two letters or more, rounded up.

    A letter is swapped with the next, left out, doubled, or replaced by another of the text.
    """
    words = [word for word in _WORD.finditer(text) if word[0].isalpha()]  # not H₂O, m²
    letters = "".join(word[0] for word in words)
    for i in _choose(len(words), _WORDS_PER_ERROR, rng):
        at = words[i].start() + int(rng.integers(len(words[i][0]) - 1))
        first, second = text[at], text[at + 1]
        other = letters[rng.integers(len(letters))]
        pairs = second + first, second, first + first + second, other + second
        wrong = [pair for pair in pairs if pair != first + second]
        text = text[:at] + wrong[rng.integers(len(wrong))] + text[at + 2 :]
    return text


def extra_blanks(text: str, rng: np.random.Generator) -> str:
    """The text with every fifth blank doubled, rounded up, and one before punctuation after words.

    Vocabularies merge the former; the latter change what a model reads.
    """
    places = [i for i, character in enumerate(text) if character == " "]
    for i in _choose(len(places), _BLANKS_PER_EXTRA, rng):
        text = f"{text[: places[i]]} {text[places[i] :]}"
    return _MARKS.sub(" ", text)


NOISES: dict[str, Callable[[str, np.random.Generator], str]] = {
    "upper_case": upper_case,
    "title_case": title_case,
    "no_final_punctuation": no_final_punctuation,
    "typographic_quotes": typographic_quotes,
    "typing_errors": typing_errors,
    "extra_blanks": extra_blanks,
}
"""All kinds, in the order in which several are added to one text."""


@dataclass(frozen=True)
class NoiseMix:
    """Each kind of noise on some sources, independently of the others: ``protocols.SourceNoise``.

    Args:
        rates: Share of the sources that get a kind, by its name in ``NOISES``; 0 if it is missing.
    """

    rates: Mapping[str, float]

    def __call__(self, rng: np.random.Generator) -> Callable[[str], str] | None:
        """Draws the kinds that a source gets; None if it gets none."""
        drawn = rng.random(len(NOISES)) < [self.rates.get(name, 0) for name in NOISES]
        if not drawn.any():
            return None

        def add(text: str) -> str:
            for noise in compress(NOISES.values(), drawn):
                text = noise(text, rng)
            return text

        return add


STANDARD = NoiseMix(
    {
        # Text in capitals has more than twice as many pieces, so that its rate decides what noise
        # costs: an update takes about 3% longer with these rates and 6% with 0.05 for both, as in
        # OpusTrainer's examples, by the number of source tokens.
        "upper_case": 0.02,
        "title_case": 0.02,
        "no_final_punctuation": 0.05,
        "typographic_quotes": 0.05,
        "typing_errors": 0.05,
        "extra_blanks": 0.05,
    }
)
"""``data.augment=standard``: noise on a fifth of the sources."""


def _choose(count: int, every: int, rng: np.random.Generator) -> list[int]:
    """One in ``every`` of ``count`` things, rounded up: random indices, the last one first."""
    chosen = rng.permutation(count)[: math.ceil(count / every)]
    return sorted(chosen.tolist(), reverse=True)
