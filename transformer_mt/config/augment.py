"""Schema of the configuration group ``augment``."""

from dataclasses import dataclass

from transformer_mt.config.checks import Checked, number


@dataclass(kw_only=True, frozen=True)
class AugmentConfig(Checked, prefix="data.augment."):
    """Noise on training sources: share of the pairs, drawn again each epoch, that get each kind.

    Targets stay as they are.
    """

    upper_case: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources in capitals."""
    title_case: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources in which every word has a capital first letter."""
    no_final_punctuation: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources without the marks at their end."""
    typographic_quotes: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources whose straight quotes and apostrophes become typographic. They are those of
    a random language; ``data.normalization=standard`` and ``moses`` undo it."""
    typing_errors: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources with typing errors. One in every tenth word, rounded up: a letter swapped
    with the next, left out, doubled or replaced."""
    extra_blanks: float = number(0.0, at_least=0, at_most=1)
    """Rate of sources with extra blanks. Every fifth blank, rounded up, is doubled, and one is
    added before each punctuation mark after a word."""
