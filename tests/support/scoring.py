"""Scores of texts by several metrics."""

from collections.abc import Sequence

from transformer_mt.evaluation.metrics import DEFAULT
from transformer_mt.evaluation.scores import Score, compute_score


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
) -> list[Score]:
    return [compute_score(name, tgt_lang, hypotheses, references) for name in metrics]
