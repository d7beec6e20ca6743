"""Scores with their signatures: computing them with sacreBLEU, and their text and JSON forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.base import Metric

from transformer_mt.errors import InputError
from transformer_mt.files import read_json

SIGNIFICANT = 0.05
"""Differences with p-values below this are marked as significant."""

DIGITS = 4
"""Decimals of a score in JSON, as with ``sacrebleu -w 4``."""

Lines = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric's result on one test set."""

    name: str
    """``BLEU``, ``chrF2``, ``TER``, ``BLEU (paper protocol)``, …"""
    score: float
    """On 0–100 for BLEU and chrF2; TER is an error rate, lower is better, and may pass 100."""
    signature: str
    """sacreBLEU's signature: scores are comparable only if their signatures are equal."""
    tag: str = ""
    """Tag of the source lines that were scored, such as ``<2fr>``; "" if they have none."""
    length: str = ""
    """Length of the source lines that were scored, such as ``4–9 words``; "" for all lengths."""
    segments: int
    """Number of lines. newstest2014 has 3,003; a subset of 2,737 is often scored by mistake."""
    verbose: str = ""
    """Details, such as n-gram precisions and brevity penalty; may be empty."""
    mean: float | None = None
    """Mean of the bootstrap resamples, if any."""
    confidence: float | None = None
    """Half the width of the 95% interval; sacreBLEU prints ``μ = mean ± confidence``."""
    difference: float | None = None
    """Difference from the baseline, if it was compared with one."""
    p_bootstrap: float | None = None
    """p-value of the paired bootstrap test: the probability of a difference this large if both
    systems were equally good. None if the test was not run."""
    decimals: int = 2
    """Decimals of the score to print."""

    @property
    def label(self) -> str:
        """Name of the metric, with the tag."""
        return f"{self.name} {self.tag}" if self.tag else self.name

    @property
    def is_significant(self) -> bool:
        """Whether the test, if it was run, finds the difference significant."""
        return self.p_bootstrap is not None and self.p_bootstrap < SIGNIFICANT

    def to_row(self) -> dict[str, str | float | int]:
        """The score as an object of sacreBLEU's JSON list."""
        row: dict[str, str | float | int] = {
            "name": self.name,
            "score": round(self.score, DIGITS),
            "signature": self.signature,
        }
        if self.mean is not None and self.confidence is not None:
            row["confidence_mean"] = round(self.mean, DIGITS)
            row["confidence_var"] = round(self.confidence, DIGITS)
            row["confidence"] = f"μ = {self.mean:.{DIGITS}f} ± {self.confidence:.{DIGITS}f}"
        if self.verbose:
            row["verbose_score"] = self.verbose
        for field in self.signature.split("|"):
            key, _, value = field.partition(":")
            row[key] = value
        row["segments"] = self.segments
        if self.tag:
            row["tag"] = self.tag
        if self.length:
            row["length"] = self.length
        return row


def make_score(metric: Metric, hypotheses: Lines, references: Sequence[Lines]) -> Score:
    """The score of texts by a metric of ``make_metric``.

    Args:
        metric: The metric.
        hypotheses: Detokenised translations.
        references: One list per reference set, each as long as ``hypotheses``.
    """
    result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    facts = json.loads(result.format(signature=signature, is_json=True))
    return Score(
        name=result.name,
        score=result.score,
        signature=signature,
        segments=len(hypotheses),
        verbose=facts.get("verbose_score", ""),
    )


def check_line_counts(texts: Mapping[str, Lines]) -> None:
    """Raises ``InputError`` unless all texts (by name) have the same number of lines, not 0."""
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
    return json.dumps([item.to_row() for item in scores], indent=1, ensure_ascii=False)


def read_scores(path: Path) -> list[Score] | None:
    """The scores of a file that ``to_json`` made, without intervals; None if it is missing."""
    if not path.exists():
        return None
    return [
        Score(
            name=row["name"],
            score=row["score"],
            signature=row["signature"],
            segments=row["segments"],
            verbose=row.get("verbose_score", ""),
            tag=row.get("tag", ""),
        )
        for row in read_json(path, remedy="delete it, and the run is scored again")
    ]


def to_text(scores: Sequence[Score]) -> str:
    """The scores in 80 columns, each above its signature, which may be longer."""
    width = max((len(item.label) for item in scores), default=0)
    lines = []
    for item in scores:
        number = f"{item.score:6.{item.decimals}f}"
        if item.mean is not None:
            number += f" (μ = {item.mean:.2f} ± {item.confidence:.2f})"
        lines.append(f"{item.label:<{width}}  {number}  {format_segments(item.segments)}")
        lines.append(f"  {item.signature}")  # never wrapped: it is copied into papers
        if item.verbose:
            lines.append("  " + item.verbose.replace(" (", "\n  ("))
    return "\n".join(lines)


def format_segments(number: int) -> str:
    """The number of segments, as text."""
    return f"{number:,} segment{'' if number == 1 else 's'}"
