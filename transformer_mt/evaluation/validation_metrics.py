"""Registry of the metrics that each validation computes from its translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_mt.evaluation.scores import score, validation_bleu

Texts = Sequence[str]


@dataclass(frozen=True)
class ValidationMetric:
    """A corpus-level metric and its direction."""

    function: Callable[[Texts, Sequence[Texts], str, str], float]
    """Arguments: hypotheses, reference sets, target language, ``data.normalization``."""
    higher_is_better: bool = True


def _bleu(texts: Texts, references: Sequence[Texts], lang: str, normalization: str) -> float:
    return validation_bleu(texts, references, tgt_lang=lang, normalization=normalization).score


def _chrf(texts: Texts, references: Sequence[Texts], lang: str, _: str) -> float:
    return score(texts, references, tgt_lang=lang, metrics=["chrf"])[0].score


VALIDATION_METRICS: dict[str, ValidationMetric] = {
    "bleu": ValidationMetric(_bleu),
    "chrf": ValidationMetric(_chrf),
}
"""Metrics by the name that they have in ``metrics.jsonl`` and ``train.best_by``."""
