"""One score: a number, its signature, the number of segments, and how sure it is."""

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
    """sacreBLEU's signature: all that must be equal for two scores to be comparable."""
    segments: int
    """Lines scored: newstest2014 has 3,003, and a subset of 2,737 that is scored by mistake."""
    verbose: str
    """What the metric adds, such as n-gram precisions and brevity penalty; empty if nothing."""
    mean: float | None = None
    """Of the bootstrap resamples, if there were any."""
    confidence: float | None = None
    """Half the width of the 95% interval around the mean; sacreBLEU prints ``μ = mean ± this``."""
    decimals: int = 2
    """How many to print."""


def corpus_score(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    bootstrap: int = 0,
) -> Score:
    """What the metric says of a test set.

    Args:
        metric: One of sacreBLEU's.
        hypotheses: Translations.
        references: One list per reference set.
        bootstrap: Resamples of the 95% interval; 0 is none. The seed is sacreBLEU's own: 12345, or
            that of the environment's ``SACREBLEU_SEED``.
    """
    result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    printed = json.loads(result.format(signature=signature, is_json=True))
    mean = confidence = None
    if bootstrap:
        # Not corpus_score(n_bootstrap=…): it fails where a resample has no match at all.
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
    """Raise ``InputError`` unless there is something to score, and a reference for every line."""
    if not references:
        raise InputError("no references given: a score needs at least one reference set")
    texts = {f"reference set {i}": lines for i, lines in enumerate(references, 1)}
    check_line_counts({"the hypotheses": hypotheses, **texts})


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    """Raise ``InputError`` unless all texts, given by file name, pair up line by line."""
    (first, lines), *others = texts.items()
    for name, other in others:
        if len(other) != len(lines):
            raise InputError(
                f"{len(lines)} lines in {first} but {len(other)} in {name}: line n of each must "
                "belong together; is one cut short, or of another test set?"
            )
    if not lines:
        raise InputError(f"no lines in {first}: there is nothing to score")
