"""Diagnostics for suspicious scores: warnings of one sentence each, never errors."""

import re
from collections.abc import Iterator, Sequence

import regex

from transformer_mt.config.languages import base_language

TOKENISED_SHARE = 0.1
"""Output looks tokenised if more than this share of its lines has traces of tokenisation."""
QUOTE_SHARE = 0.9
"""A text has one style of quotes if at least this share of its quotes is in that style."""
LENGTH_RATIO = 1.25
"""Output that is this many times longer, or shorter, than its references is reported."""

# A space before a full stop or comma, and traces of subword and Moses tokenisers. A space before
# ! ? : ; does not count: French has one.
_TOKENISED = re.compile(r"\S [.,](?: |$)|@-@|@@ |▁|&apos;|&quot;")

_QUOTES = {
    "quotes": {'"': '"', "“”„‟": "„…“", "«»": "«…»"},
    "apostrophes": {"'": "'", "’‘": "’"},
}
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Tibetan}\p{Myanmar}\p{Khmer}]"
)
"""A letter of the languages in ``UNSPACED``."""
_SEGMENTED = ("ja", "yue", "zh")
"""Those for which BLEU has a tokeniser and TER counts characters."""
_MAX_WORD_LENGTH = 8  # with more of these letters per space, the spaces do not separate words

_MIN_QUOTES = 5  # for a text to have a style of quotes
_MIN_LINES = 10  # for judging tokenisation and length


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
    if any(stripped) and any(stripped == list(map(str.strip, lines)) for lines in references):
        warnings.append(
            "every line is identical to a reference: is this the reference file itself?"
        )
    if words and is_unspaced(references, tgt_lang):
        warnings.append(
            "the references have no spaces between words: rely on chrF, or set tgt_lang=ja, yue or "
            "zh, for which BLEU and TER segment them"
        )
    if source is not None:
        copies = sum(h == s.strip() != "" for h, s in zip(stripped, source, strict=True))
        if copies:
            warnings.append(f"{copies:,} of {total:,} lines are identical to their source")
    if empty := stripped.count(""):
        warnings.append(f"{empty:,} of {total:,} lines are empty")
    for lines in references:
        if blank := sum(bool(h) and not r.strip() for h, r in zip(stripped, lines, strict=True)):
            warnings.append(f"{blank:,} of {total:,} lines of a reference are empty")
    warnings.extend(_quotes(hypotheses, references))
    if total >= _MIN_LINES:
        warnings.extend(_tokenised(hypotheses, references))
        warnings.extend(_length(hypotheses, references))
    return warnings


def is_unspaced(references: Sequence[Sequence[str]], tgt_lang: str | None) -> bool:
    """Whether the references have no spaces, so that BLEU finds no words in them."""
    if base_language(tgt_lang or "") in _SEGMENTED:
        return False
    text = "\n".join(line.strip() for lines in references for line in lines)
    letters, spaces = len(_UNSPACED.findall(text)), text.count(" ")
    return 2 * letters > len(text) - spaces and spaces * _MAX_WORD_LENGTH <= letters


def _tokenised(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    total = len(hypotheses)
    texts = [("the output", hypotheses), *(("a reference", lines) for lines in references)]
    counts = [(who, sum(bool(_TOKENISED.search(line)) for line in lines)) for who, lines in texts]
    noticed = [
        f"{count:,} of {total:,} lines of {who}"
        for who, count in counts
        if count > TOKENISED_SHARE * total
    ]
    if noticed:
        yield (
            f"{' and '.join(noticed)} look tokenised (for example, a space before the full stop): "
            "scores are comparable on detokenised text only"
        )


def _quotes(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    output, reference = "\n".join(hypotheses), "\n".join("\n".join(lines) for lines in references)
    for kind, styles in _QUOTES.items():
        ours, theirs = _style(output, styles), _style(reference, styles)
        if ours and theirs and ours != theirs:
            yield (
                f"{kind} are {ours} in the output but {theirs} in the references, which lowers the "
                "scores"
            )


def _style(text: str, styles: dict[str, str]) -> str | None:
    """The style of nearly all quotes in a text, if there is one."""
    counts = {name: sum(map(text.count, signs)) for signs, name in styles.items()}
    best = max(counts, key=lambda name: counts[name])
    total = sum(counts.values())
    return best if total >= _MIN_QUOTES and counts[best] >= QUOTE_SHARE * total else None


def _length(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    ours = sum(map(len, hypotheses))
    theirs = sum(len(line) for lines in references for line in lines) / len(references)
    if theirs and not 1 / LENGTH_RATIO <= ours / theirs <= LENGTH_RATIO:
        yield (
            f"the output is {ours / theirs:.2f} times as long as the references, in characters: "
            "is it truncated, repetitive, or in another language?"
        )
