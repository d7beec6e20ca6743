"""A score: a number with its signature, number of segments and confidence interval."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer_mt.errors import InputError


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


def corpus_score(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    bootstrap: int = 0,
) -> Score:
    """Score a test set with a metric of sacreBLEU.

    Args:
        metric: A metric of sacreBLEU.
        hypotheses: Translations.
        references: One list per reference set.
        bootstrap: Resamples for the 95% interval; 0 is none. The seed is sacreBLEU's: 12345, or
            the environment variable ``SACREBLEU_SEED``.
    """
    result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    printed = json.loads(result.format(signature=signature, is_json=True))
    mean = confidence = None
    if bootstrap:
        # Not corpus_score(n_bootstrap=…), which fails if a resample has no match at all.
        test = PairedTest(
            [("", hypotheses)], {"": metric}, references, test_type="bs", n_samples=bootstrap
        )
        signatures, results = test()
        signature = signatures[result.name].format()
        (resampled,) = results[result.name]
        assert not isinstance(resampled, str)
        assert resampled.mean is not None
        assert resampled.ci is not None
        mean, confidence = float(resampled.mean), float(resampled.ci)
    return Score(
        name=result.name,
        score=result.score,
        signature=signature,
        segments=len(hypotheses),
        verbose=printed.get("verbose_score", ""),
        mean=mean,
        confidence=confidence,
    )


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
