"""Signs that a score does not mean what it seems to: each one sentence, none an error."""

import re
from collections.abc import Iterator, Sequence

from transformer_mt.data.text.languages import base_language

TOKENISED_SHARE = 0.1
"""Share of lines with the marks of tokens, above which output looks tokenised."""
QUOTE_SHARE = 0.9
"""Share of one style among a text's quotes, above which that is its style."""
LENGTH_RATIO = 1.25
"""Output this many times longer, or shorter, than its reference is pointed out."""

# A space before a full stop or comma; what subword and Moses' tokenisers leave in the text. Not
# before ! ? : ; where French has one.
_TOKENS = re.compile(r"\S [.,](?: |$)|@-@|@@ |▁|&apos;|&quot;")

_QUOTES = {
    "quotes": {'"': '"', "“”„‟": "„…“", "«»": "«…»"},
    "apostrophes": {"'": "'", "’‘": "’"},
}
# Letters of languages that have no spaces between words; Japanese is told by its kana.
_UNSPACED = {
    "ja": re.compile("[\u3040-\u30ff]+"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+"),
    "th": re.compile("[\u0e00-\u0e7f]+"),
    "lo": re.compile("[\u0e80-\u0eff]+"),
    "bo": re.compile("[\u0f00-\u0fff]+"),
    "my": re.compile("[\u1000-\u109f]+"),
    "km": re.compile("[\u1780-\u17ff]+"),
}
_TOKENISERS = ("ja", "zh")  # that sacreBLEU has for these
_LONGEST_WORD = 8  # so many of these letters to a space on average are no words any more

_LEAST_QUOTES = 5  # tell a style
_LEAST_LINES = 10  # tell whether output is tokenised, or of the right length


def suspicions(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    source: Sequence[str] | None = None,
    *,
    tgt_lang: str | None = None,
    words: bool = True,
) -> list[str]:
    """What a person should know before trusting the scores of these lines.

    Args:
        hypotheses: One system's translations.
        references: One list per reference set, each as long as ``hypotheses``.
        source: The lines translated, if they are known.
        tgt_lang: Code of their language, if it is known.
        words: Whether a metric counts words, as BLEU and TER do and chrF does not.
    """
    found = []
    total = len(hypotheses)
    if any(_equal(hypotheses, lines) for lines in references):
        found.append("every line is equal to that of a reference: is this the reference itself?")
    if words:
        found.extend(unspaced(references, tgt_lang))
    if source is not None:
        copies = sum(h.strip() == s.strip() != "" for h, s in zip(hypotheses, source, strict=True))
        if copies:
            found.append(f"{copies:,} of {total:,} lines are equal to their source")
    empty = sum(not line.strip() for line in hypotheses)
    if empty:
        found.append(f"{empty:,} of {total:,} lines are empty")
    for lines in references:
        if blank := sum(
            bool(h.strip()) and not r.strip() for h, r in zip(hypotheses, lines, strict=True)
        ):
            found.append(f"{blank:,} of {total:,} lines of a reference are empty")
    found.extend(_quotes(hypotheses, references))
    if total >= _LEAST_LINES:
        found.extend(_tokenised(hypotheses, references))
        found.extend(_length(hypotheses, references))
    return found


def _equal(hypotheses: Sequence[str], lines: Sequence[str]) -> bool:
    pairs = [(h.strip(), r.strip()) for h, r in zip(hypotheses, lines, strict=True)]
    return any(h for h, _ in pairs) and all(h == r for h, r in pairs)


def unspaced(references: Sequence[Sequence[str]], tgt_lang: str | None) -> Iterator[str]:
    """Whether BLEU, which counts words, finds none in references of this language."""
    if base_language(tgt_lang or "") in _TOKENISERS:
        return
    text = "\n".join(line.strip() for lines in references for line in lines)
    counts = {lang: sum(map(len, letters.findall(text))) for lang, letters in _UNSPACED.items()}
    spaces, total = text.count(" "), sum(counts.values())
    if 2 * total <= len(text) - spaces or spaces * _LONGEST_WORD > total:
        return
    # Chinese has no kana, Japanese half of all.
    lang = "ja" if 10 * counts["ja"] > total else max(counts, key=lambda lang: counts[lang])
    do = (
        f"say tgt_lang={lang}, with which BLEU finds them, or rely on chrF"
        if lang in _TOKENISERS
        else "rely on chrF, since sacreBLEU's BLEU and TER do not find them"
    )
    yield f"the references have no spaces between words: {do}"


def _tokenised(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    total = len(hypotheses)
    texts = [("the output", hypotheses), *(("a reference", lines) for lines in references)]
    counts = [(who, sum(bool(_TOKENS.search(line)) for line in lines)) for who, lines in texts]
    found = [
        f"{count:,} of {total:,} lines of {who}"
        for who, count in counts
        if count > TOKENISED_SHARE * total
    ]
    if found:
        yield (
            f"{' and '.join(found)} look tokenised (a space before the full stop, say): scores "
            "are comparable on detokenised text only"
        )


def _quotes(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    output, reference = "\n".join(hypotheses), "\n".join("\n".join(lines) for lines in references)
    for kind, styles in _QUOTES.items():
        ours, theirs = _style(output, styles), _style(reference, styles)
        if ours and theirs and ours != theirs:
            yield (
                f"{kind} are {ours} in the output but {theirs} in the references: each costs score"
            )


def _style(text: str, styles: dict[str, str]) -> str | None:
    """The style that nearly all of a text's quotes are in, if there is one."""
    counts = {name: sum(map(text.count, signs)) for signs, name in styles.items()}
    best = max(counts, key=lambda name: counts[name])
    total = sum(counts.values())
    return best if total >= _LEAST_QUOTES and counts[best] >= QUOTE_SHARE * total else None


def _length(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    ours = sum(map(len, hypotheses))
    theirs = sum(len(line) for lines in references for line in lines) / len(references)
    if theirs and not 1 / LENGTH_RATIO <= ours / theirs <= LENGTH_RATIO:
        yield (
            f"the output is {ours / theirs:.2f} times as long as the references, in characters: "
            "is it cut short, repeating itself, or in another language?"
        )
