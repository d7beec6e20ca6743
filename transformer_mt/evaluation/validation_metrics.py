"""Metrics of validation translations, which ``registries.VALIDATION_METRICS`` lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_mt.evaluation.scores import score, validation_bleu
from transformer_mt.registries import VALIDATION_METRICS, load

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


BLEU = ValidationMetric(_bleu)
CHRF = ValidationMetric(_chrf)


def validation_metrics() -> dict[str, ValidationMetric]:
    """All metrics by the name that they have in ``metrics.jsonl`` and ``train.best_by``."""
    return {name: load(VALIDATION_METRICS, name) for name in VALIDATION_METRICS}
