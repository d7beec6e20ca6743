"""Diagnostics for suspicious scores: warnings of one sentence each, never errors."""

import re
from collections.abc import Sequence

import regex

from transformer_mt.config.languages import base_language
from transformer_mt.evaluation.metrics import SEGMENTED

TOKENISED_SHARE = 0.1
"""Output looks tokenised if more than this share of its lines has traces of tokenisation."""
# A space before a full stop or comma, and traces of subword and Moses tokenisers. A space before
# ! ? : ; does not count: French has one.
_TOKENISED = re.compile(r"\S [.,](?: |$)|@-@|@@ |▁|&apos;|&quot;")

_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Tibetan}\p{Myanmar}\p{Khmer}]"
)
"""A letter of the languages in ``UNSPACED``."""
_MAX_WORD_LENGTH = 8  # with more of these letters per space, the spaces do not separate words

_MIN_LINES = 10  # for judging tokenisation


def diagnose(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    source: Sequence[str] | None = None,
    *,
    tgt_lang: str | None = None,
    words: bool = True,
) -> list[str]:
    """Reasons to doubt the scores of one system's translations, one warning per problem.

    Args:
        hypotheses: The translations.
        references: One list per reference set, each as long as ``hypotheses``.
        source: Source sentences, if known.
        tgt_lang: Language code of the translations, if known.
        words: Whether a metric counts words, as BLEU and TER do and chrF does not.
    """
    warnings = []
    total = len(hypotheses)
    stripped = [line.strip() for line in hypotheses]
    if words and is_unspaced(references, tgt_lang):
        warnings.append(
            "the references have no spaces between words: rely on chrF or, if they are Chinese or "
            "Japanese, set tgt_lang=zh or ja, for which BLEU and TER segment them"
        )
    if source is not None:
        copies = sum(h == s.strip() != "" for h, s in zip(stripped, source, strict=True))
        if copies:
            warnings.append(f"{copies:,} of {total:,} lines are identical to their source")
    if empty := stripped.count(""):
        warnings.append(f"{empty:,} of {total:,} lines are empty")
    if total < _MIN_LINES:
        return warnings
    tokenised = []
    for who, lines in [("the output", hypotheses), *(("a reference", r) for r in references)]:
        count = sum(bool(_TOKENISED.search(line)) for line in lines)
        if count > TOKENISED_SHARE * total:
            tokenised.append(f"{count:,} of {total:,} lines of {who}")
    if tokenised:
        warnings.append(
            f"{' and '.join(tokenised)} look tokenised (for example, a space before the full "
            "stop): scores are comparable on detokenised text only"
        )
    return warnings


def is_unspaced(references: Sequence[Sequence[str]], tgt_lang: str | None = None) -> bool:
    """Whether texts have no spaces between words, and BLEU finds none by their language either."""
    if base_language(tgt_lang or "") in SEGMENTED:
        return False
    text = "\n".join(line.strip() for lines in references for line in lines)
    letters, spaces = len(_UNSPACED.findall(text)), text.count(" ")
    return 2 * letters > len(text) - spaces and spaces * _MAX_WORD_LENGTH <= letters
