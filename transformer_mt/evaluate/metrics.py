"""Scores of translations, always with the signature and the number of segments behind them.

``score`` and ``bleu`` are sacreBLEU's own numbers on detokenised text against raw references.
What other protocols give is another scale, in ``protocols.py``.
"""

import json
import re
from collections.abc import Callable, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.data.text.languages import UNSPACED, base_language
from transformer_mt.errors import InputError
from transformer_mt.evaluate.protocols import OF_NORMALIZATION, PROTOCOLS
from transformer_mt.evaluate.scores import Score, check, corpus_score

DIGITS = 4
"""Decimals of a score in JSON: ``sacrebleu -w 4`` prints the same number."""

DEFAULT = ("bleu", "chrf", "ter")
"""The metrics that are computed where none are named."""

_OTHERS: dict[str, Callable[[], Metric]] = {
    "chrf": CHRF,
    "chrf++": lambda: CHRF(word_order=2),
    "ter": TER,
}
_CHARACTERS = {"ja", "yue", "zh"}
"""Languages whose TER counts characters, or else each sentence would be one word."""


def make_metric(name: str, tgt_lang: str | None = None) -> Metric:
    """A metric of sacreBLEU's: ``bleu``, ``chrf``, ``chrf++`` or ``ter``.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    language = base_language(tgt_lang or "")
    if name == "ter" and language in _CHARACTERS:
        return TER(normalized=True, asian_support=True)
    if name != "bleu":
        return _OTHERS[name]()
    try:
        # force: what looks tokenised is told by suspicions.py, in one line and by file.
        return BLEU(trg_lang=language, force=True)
    except RuntimeError as error:  # sacreBLEU: MeCab is not installed
        raise InputError(
            f"BLEU for {tgt_lang} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{language}]'"
        ) from error


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
    bootstrap: int = 0,
) -> list[Score]:
    """BLEU, chrF2 and TER as ``sacrebleu ref -i hyp -m bleu chrf ter`` computes them.

    Args:
        hypotheses: Detokenised translations.
        references: One list per reference set, each as long as ``hypotheses``.
        tgt_lang: Language code; Chinese, Japanese and Korean get sacreBLEU's own tokenisers for
            BLEU, and the first two its ``--ter-normalized --ter-asian-support``.
        metrics: Names that ``make_metric`` knows.
        bootstrap: Resamples of the 95% intervals, as with sacreBLEU's ``--confidence``; 0 is none.

    Raises:
        InputError: If there is nothing to score, or the lists differ in length.
    """
    check(hypotheses, references)
    return [
        corpus_score(make_metric(name, tgt_lang), hypotheses, references, bootstrap=bootstrap)
        for name in metrics
    ]


def score_all(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None,
    normalization: str = "none",
    metrics: Sequence[str] = DEFAULT,
    protocols: Sequence[str] | None = None,
    bootstrap: int = 0,
) -> list[Score]:
    """``score``, followed by the protocols asked for, or by those that apply.

    These are the paper's where the target language is known and has spaces between words, which
    Moses' tokeniser goes by, and that of the system's ``data.normalization``, as of
    ``moses_lowercase``.
    """
    scores = score(hypotheses, references, tgt_lang=tgt_lang, metrics=metrics, bootstrap=bootstrap)
    if tgt_lang is None:
        return scores
    if protocols is None:
        spaced = base_language(tgt_lang) not in UNSPACED
        protocols = ["paper"] * spaced
        if normalization in OF_NORMALIZATION:
            protocols.append(OF_NORMALIZATION[normalization])
    for name in protocols:
        protocol = PROTOCOLS[name]
        scores.append(protocol(hypotheses, references, tgt_lang=tgt_lang, bootstrap=bootstrap))
    return scores


def validation_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str,
    normalization: str = "none",
) -> Score:
    """What checkpoints are compared by: sacreBLEU's, or that of the normalisation's protocol."""
    if normalization in OF_NORMALIZATION:
        return PROTOCOLS[OF_NORMALIZATION[normalization]](hypotheses, references, tgt_lang=tgt_lang)
    return score(hypotheses, references, tgt_lang=tgt_lang, metrics=["bleu"])[0]


def check_language(tgt_lang: str) -> None:
    """Raise ``InputError`` if scoring this language needs a tokeniser that is not installed."""
    make_metric("bleu", tgt_lang)


def to_json(scores: Sequence[Score]) -> str:
    """The list that ``sacrebleu --format json -w 4`` prints, with ``segments`` added.

    Four decimals are enough to tell two systems apart and few enough that the same text gives the
    same digits on every machine.
    """
    return json.dumps([to_row(item) for item in scores], indent=1, ensure_ascii=False)


def from_json(text: str) -> list[Score]:
    """The scores that ``to_json`` wrote, to four decimals and without intervals.

    Raises:
        ValueError: The text is no JSON.
        KeyError: Something is missing in it.
        TypeError: It is no list of scores.
    """
    return [
        Score(
            name=row["name"],
            score=row["score"],
            signature=row["signature"],
            segments=row["segments"],
            verbose=row.get("verbose_score", ""),
        )
        for row in json.loads(text)
    ]


def to_row(item: Score) -> dict[str, str | float | int]:
    """A score as an object of that list."""
    row: dict[str, str | float | int] = {
        "name": item.name,
        "score": round(item.score, DIGITS),
        "signature": item.signature,
    }
    if item.mean is not None and item.confidence is not None:
        row["confidence_mean"] = round(item.mean, DIGITS)
        row["confidence_var"] = round(item.confidence, DIGITS)
        row["confidence"] = f"μ = {item.mean:.{DIGITS}f} ± {item.confidence:.{DIGITS}f}"
    if item.verbose:
        row["verbose_score"] = item.verbose
    for field in item.signature.split("|"):
        key, _, value = field.partition(":")
        row[key] = value
    row["segments"] = item.segments
    return row


def to_text(scores: Sequence[Score]) -> str:
    """The scores for a person at an 80-column terminal, each above its signature."""
    width = max((len(item.name) for item in scores), default=0)
    lines = []
    for item in scores:
        plural = "" if item.segments == 1 else "s"
        number = f"{item.score:6.{item.decimals}f}"
        if item.mean is not None:
            number += f" (μ = {item.mean:.{item.decimals}f} ± {item.confidence:.{item.decimals}f})"
        lines.append(f"{item.name:<{width}}  {number}  {item.segments} segment{plural}")
        lines.append(f"  {lasting_signature(item)}")  # copied into papers, so never broken
        if item.verbose:
            lines.append("  " + item.verbose.replace(" (", "\n  ("))
    return "\n".join(lines)


def lasting_signature(item: Score) -> str:
    """The signature without what only an interval depends on, which would pass 80 columns."""
    return re.sub(r"\|(?:bs|seed):[^|]*", "", item.signature)
