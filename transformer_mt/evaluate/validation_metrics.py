"""Registry of the metrics that each validation computes from its translations.

To add a metric, register it in ``VALIDATION_METRICS``: it is then logged, recorded and tracked. To
select checkpoints by it as well, add its name to the choices of ``train.best_by``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transformer_mt.evaluate.metrics import validation_bleu


class MetricFunction(Protocol):
    """Scores translations of the validation set."""

    def __call__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        tgt_lang: str,
        normalization: str,
    ) -> float:
        """The corpus-level score.

        Args:
            hypotheses: Detokenised translations.
            references: One list per reference set, each as long as ``hypotheses``.
            tgt_lang: Language code of the target side.
            normalization: ``data.normalization``.
        """
        ...


@dataclass(frozen=True)
class ValidationMetric:
    """A metric and its direction."""

    function: MetricFunction
    higher_is_better: bool = True


def _bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str,
    normalization: str,
) -> float:
    result = validation_bleu(hypotheses, references, tgt_lang=tgt_lang, normalization=normalization)
    return result.score


VALIDATION_METRICS: dict[str, ValidationMetric] = {
    "bleu": ValidationMetric(_bleu),
}
"""Metrics by the name that they have in ``metrics.jsonl`` and ``train.best_by``."""
