"""Metrics of translation quality: their registry, scoring with sacreBLEU, and printing of scores.

sacreBLEU scores detokenised text against raw references. BLEU by other protocols is on another
scale and lives in ``protocols.py``.

To add a metric of sacreBLEU, add it to ``SACREBLEU_METRICS``. Any other metric has its own module,
a name in ``OTHER_METRICS`` and a call in ``jobs/evaluate.py``. Either way, add the name to
``config/evaluate.py``.
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
from transformer_mt.evaluation.protocols import OF_NORMALIZATION, PROTOCOLS
from transformer_mt.evaluation.scores import Score, check, corpus_score

DIGITS = 4
"""Decimals of a score in JSON, as with ``sacrebleu -w 4``."""


def _bleu(language: str) -> Metric:
    try:
        # force: score_diagnostics.py reports tokenised text, in one line for each file.
        return BLEU(trg_lang=language, force=True)
    except RuntimeError as error:  # sacreBLEU: MeCab is not installed
        raise InputError(
            f"BLEU for {language} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{language}]'"
        ) from error


def _ter(language: str) -> Metric:
    # Without spaces, a sentence would be one word: there TER counts characters.
    characters = language in ("ja", "yue", "zh")
    return TER(normalized=characters, asian_support=characters)


SACREBLEU_METRICS: dict[str, Callable[[str], Metric]] = {
    "bleu": _bleu,
    "chrf": lambda _: CHRF(),
    "chrf++": lambda _: CHRF(word_order=2),
    "ter": _ter,
}
"""Metrics by name; each is made for a target language, or "" if that is unknown."""

OTHER_METRICS = ("comet", "ppl")
"""Metrics that need more than hypotheses and references: ``comet.py``, ``perplexity.py``."""

DEFAULT = ("bleu", "chrf", "ter")
"""Metrics that are computed unless others are set."""


def make_metric(name: str, tgt_lang: str | None = None) -> Metric:
    """A metric of ``SACREBLEU_METRICS``, set up for a target language.

    Raises:
        InputError: BLEU for this language needs a tokeniser that is not installed.
    """
    return SACREBLEU_METRICS[name](base_language(tgt_lang or ""))


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
        metrics: Names of ``SACREBLEU_METRICS``.
        bootstrap: Resamples for 95% intervals, as with sacreBLEU's ``--confidence``; 0 is none.

    Raises:
        InputError: There is nothing to score, or the lists differ in length.
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
    """``score``, followed by BLEU by other protocols (``PROTOCOLS``).

    ``protocols=None`` chooses them: the paper's if the target language is known and has spaces
    between words, as Moses' tokeniser expects; and the one that belongs to ``normalization``, the
    system's ``data.normalization``.
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
    """BLEU for comparing checkpoints: sacreBLEU's, or by the protocol of the normalisation."""
    if normalization in OF_NORMALIZATION:
        return PROTOCOLS[OF_NORMALIZATION[normalization]](hypotheses, references, tgt_lang=tgt_lang)
    return score(hypotheses, references, tgt_lang=tgt_lang, metrics=["bleu"])[0]


def check_language(tgt_lang: str) -> None:
    """Raise ``InputError`` if scoring this language needs a tokeniser that is not installed."""
    make_metric("bleu", tgt_lang)


def to_json(scores: Sequence[Score]) -> str:
    """The list that ``sacrebleu --format json -w 4`` prints, with ``segments`` added.

    With four decimals, the same text gives the same digits on every machine.
    """
    return json.dumps([to_row(item) for item in scores], indent=1, ensure_ascii=False)


def from_json(text: str) -> list[Score]:
    """Read the output of ``to_json``, without intervals.

    Raises:
        ValueError: The text is not JSON.
        KeyError: A key of a score is missing.
        TypeError: It is not a list of scores.
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
    """A score as an object of sacreBLEU's JSON list."""
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
    """The scores for an 80-column terminal, each above its signature."""
    width = max((len(item.name) for item in scores), default=0)
    lines = []
    for item in scores:
        plural = "" if item.segments == 1 else "s"
        number = f"{item.score:6.{item.decimals}f}"
        if item.mean is not None:
            number += f" (μ = {item.mean:.{item.decimals}f} ± {item.confidence:.{item.decimals}f})"
        lines.append(f"{item.name:<{width}}  {number}  {item.segments} segment{plural}")
        lines.append(f"  {lasting_signature(item)}")  # never wrapped: it is copied into papers
        if item.verbose:
            lines.append("  " + item.verbose.replace(" (", "\n  ("))
    return "\n".join(lines)


def lasting_signature(item: Score) -> str:
    """The signature without the bootstrap's settings, so that it fits 80 columns."""
    return re.sub(r"\|(?:bs|seed):[^|]*", "", item.signature)
