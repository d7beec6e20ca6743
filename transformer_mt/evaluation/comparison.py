"""Statistical significance of score differences: sacreBLEU's paired tests against a baseline."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.evaluation.resampling import Resamples, bootstrap_p_value
from transformer_mt.evaluation.statistics import Statistics

SIGNIFICANT = 0.05
"""Differences with p-values below this are marked as significant."""


@dataclass(frozen=True)
class Comparison:
    """One system compared with the baseline by one metric."""

    system: str
    metric: str
    """Name of the score: ``BLEU``, ``chrF2``, ``TER``."""
    difference: float
    """Score of the system minus that of the baseline."""
    p_bootstrap: float | None
    """p-value of the paired bootstrap test: the probability of a difference this large if both
    systems were equally good. None if the test was not run."""
    p_randomization: float | None
    """p-value of the paired approximate randomisation test; None if it was not run."""

    @property
    def is_significant(self) -> bool:
        """Whether all tests that were run find the difference significant."""
        p_values = [p for p in (self.p_bootstrap, self.p_randomization) if p is not None]
        return bool(p_values) and all(p < SIGNIFICANT for p in p_values)


def compare(
    statistics: Mapping[str, Mapping[str, Statistics]], resamples: Resamples, metrics: Sequence[str]
) -> list[Comparison]:
    """Compare every other system with the first, by sacreBLEU's ``--paired-bs`` and ``-ar``.

    One correction to sacreBLEU: it counts the resamples whose difference is greater than the
    observed one, whereas a p-value counts those at least as great. For two identical systems, where
    all differences are 0, it would report p = 0.0001. If many lines differ there are hardly any
    ties, and p is sacreBLEU's to the digit.
    """
    if not (resamples.scores or resamples.p_randomization):
        return []
    baseline, *others = statistics
    found = []
    for system in others:
        for name in metrics:
            ours, theirs = statistics[system][name], statistics[baseline][name]
            result = ours.corpus_score()
            difference = result.score - theirs.corpus_score().score
            p_bootstrap = p_randomization = None
            if resamples.scores:
                pair = resamples.scores[baseline, name], resamples.scores[system, name]
                p = bootstrap_p_value(*pair, abs(difference))
                p_bootstrap = p if difference else 1.0
            if resamples.p_randomization:
                # A trial that swaps all n segments with different counts, or none of them, gives
                # the observed difference: 2 of 2^n trials do.
                differing = sum(map(operator.ne, ours.rows, theirs.rows))
                p = max(resamples.p_randomization[system, name], 2.0 ** (1 - differing))
                p_randomization = p if difference else 1.0
            found.append(Comparison(system, result.name, difference, p_bootstrap, p_randomization))
    return found
