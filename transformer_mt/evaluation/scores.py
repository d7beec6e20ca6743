"""Scoring with sacreBLEU: numbers with signature and interval, and their text and JSON forms."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import DEFAULT
from transformer_mt.evaluation.protocols import OF_NORMALIZATION
from transformer_mt.evaluation.resampling import Scores, interval, resample, seed_text
from transformer_mt.evaluation.statistics import Statistics, collect
from transformer_mt.files import read_regular

DIGITS = 4
"""Decimals of a score in JSON, as with ``sacrebleu -w 4``."""
_MAX_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric's result on one test set."""

    name: str
    """``BLEU``, ``chrF2``, ``TER``, ``BLEU (paper protocol)``, ``BLEU (lower-case tokens)``, …"""
    score: float
    """On 0–100 for BLEU and chrF2; TER is an error rate, lower is better, and may pass 100."""
    signature: str
    """sacreBLEU's signature: scores are comparable only if their signatures are equal."""
    segments: int
    """Number of lines. newstest2014 has 3,003; a subset of 2,737 is often scored by mistake."""
    verbose: str
    """Details, such as n-gram precisions and brevity penalty; may be empty."""
    mean: float | None = None
    """Mean of the bootstrap resamples, if any."""
    confidence: float | None = None
    """Half the width of the 95% interval; sacreBLEU prints ``μ = mean ± confidence``."""
    decimals: int = 2
    """Decimals to print."""


def make_score(statistics: Statistics, resamples: Scores | None) -> Score:
    """Score of a test set, with an interval if there are bootstrap resamples."""
    result = statistics.corpus_score()
    signature = statistics.metric.get_signature()
    mean = half = None
    if resamples is not None:
        signature.update("seed", seed_text())
        signature.update("bs", len(resamples))
        mean, half = interval(resamples)
    printed = json.loads(result.format(signature=signature.format(), is_json=True))
    return Score(
        name=result.name,
        score=result.score,
        signature=signature.format(),
        segments=len(statistics.rows),
        verbose=printed.get("verbose_score", ""),
        mean=mean,
        confidence=half,
    )


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
    bootstrap: int = 0,
    workers: int | None = 0,
) -> list[Score]:
    """BLEU, chrF2 and TER as ``sacrebleu ref -i hyp -m bleu chrf ter`` computes them.

    Args:
        hypotheses: Detokenised translations.
        references: One list per reference set, each as long as ``hypotheses``.
        tgt_lang: Language code; Chinese, Japanese and Korean get sacreBLEU's own tokenisers for
            BLEU, and the first two its ``--ter-normalized --ter-asian-support``.
        metrics: Names of ``METRICS`` or ``PROTOCOLS``.
        bootstrap: Resamples for 95% intervals, as with sacreBLEU's ``--confidence``; 0 is none.
        workers: Worker processes; see ``run_jobs``.

    Raises:
        InputError: There is nothing to score, or the lists differ in length.
    """
    check(hypotheses, references)
    statistics = collect({"": hypotheses}, references, metrics, tgt_lang=tgt_lang, workers=workers)
    resamples = resample(
        statistics, bootstrap=bootstrap, randomization=0, compared=(), workers=workers
    )
    return [make_score(of, resamples.scores.get(("", name))) for name, of in statistics[""].items()]


def validation_bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str,
    normalization: str = "none",
) -> Score:
    """BLEU for comparing checkpoints: sacreBLEU's, or by the protocol of the normalisation."""
    name = OF_NORMALIZATION.get(normalization, "bleu")
    return score(hypotheses, references, tgt_lang=tgt_lang, metrics=[name])[0]


def check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise ``InputError`` unless there are lines to score, each with its references."""
    if not references:
        raise InputError("no references given: a score needs at least one reference set")
    texts = {f"reference set {i}": lines for i, lines in enumerate(references, 1)}
    check_line_counts({"the hypotheses": hypotheses, **texts})


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Raise ``InputError`` unless all texts, given by name, have the same number of lines (> 0)."""
    (first, lines), *others = texts.items()
    for name, other in others:
        if len(other) != len(lines):
            raise InputError(
                f"{len(lines)} lines in {first} but {len(other)} in {name}: the files must be "
                "line-aligned; is one truncated, or from another test set?"
            )
    if not lines:
        raise InputError(f"no lines in {first}: there is nothing to score")


def to_json(scores: Sequence[Score]) -> str:
    """The list that ``sacrebleu --format json -w 4`` prints, with ``segments`` added.

    With four decimals, the same text gives the same digits on every machine.
    """
    return json.dumps([to_row(item) for item in scores], indent=1, ensure_ascii=False)


def read_scores(path: Path) -> list[Score] | None:
    """The scores of a JSON file, without intervals; None if it is missing or damaged."""
    try:
        return [
            Score(
                name=str(row["name"]),
                score=float(row["score"]),
                signature=str(row["signature"]),
                segments=int(row["segments"]),
                verbose=str(row.get("verbose_score", "")),
            )
            for row in json.loads(read_regular(path, _MAX_BYTES))
        ]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


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
        number = f"{item.score:6.{item.decimals}f}"
        if item.mean is not None:
            number += f" (μ = {item.mean:.{item.decimals}f} ± {item.confidence:.{item.decimals}f})"
        lines.append(f"{item.name:<{width}}  {number}  {format_segments(item.segments)}")
        lines.append(f"  {short_signature(item)}")  # never wrapped: it is copied into papers
        if item.verbose:
            lines.append("  " + item.verbose.replace(" (", "\n  ("))
    return "\n".join(lines)


def format_segments(number: int) -> str:
    """The number of segments, as text."""
    return f"{number} segment{'' if number == 1 else 's'}"


def short_signature(item: Score) -> str:
    """The signature without the bootstrap's settings, so that it fits 80 columns."""
    return re.sub(r"\|(?:bs|seed):[^|]*", "", item.signature)
