"""Statistical significance of score differences: sacreBLEU's paired tests against a baseline."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sacrebleu.significance import PairedTest

from transformer_mt.evaluation.metrics import DEFAULT, make_metric
from transformer_mt.evaluation.scores import check

SIGNIFICANT = 0.05
"""Differences with p-values below this are marked as significant."""

Test = Literal["bs", "ar"]


@dataclass(frozen=True, kw_only=True)
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
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
    bootstrap: int = 1000,
    randomization: int = 10_000,
) -> list[Comparison]:
    """Compare every other system with the first, by sacreBLEU's ``--paired-bs`` and ``-ar``.

    One correction to sacreBLEU: it counts the resamples whose difference is greater than the
    observed one, whereas a p-value counts those at least as great. For two identical systems, where
    all differences are 0, it would report p = 0.0001. If many lines differ there are hardly any
    ties, and p is sacreBLEU's to the digit.

    Args:
        systems: Hypotheses by the system's name, the baseline first.
        references: One list per reference set.
        tgt_lang: Language code, for BLEU's tokeniser.
        metrics: Names of ``SACREBLEU_METRICS``.
        bootstrap: Resamples of the bootstrap test; 0 skips it.
        randomization: Trials of the randomisation test; 0 skips it.

    Raises:
        InputError: There is nothing to score, or the lists differ in length.
    """
    for hypotheses in systems.values():
        check(hypotheses, references)
    if len(systems) < 2 or not metrics:
        return []

    scores: dict[tuple[str, str], float] = {}  # by system and metric
    p_values: dict[tuple[Test, str, str], float] = {}
    tests: list[tuple[Test, int]] = [("bs", bootstrap), ("ar", randomization)]
    for test, samples in tests:
        if not samples:
            continue
        paired = PairedTest(
            list(systems.items()),
            {name: make_metric(name, tgt_lang) for name in metrics},
            references,
            test_type=test,
            n_samples=samples,
        )
        _, results = paired()
        names = results.pop("System")
        for metric, of_systems in results.items():
            for name, result in zip(names, of_systems, strict=True):
                assert isinstance(name, str)
                assert not isinstance(result, str)
                scores[name, metric] = result.score
                if result.p_value is not None:  # of all systems but the baseline
                    p_values[test, name, metric] = result.p_value
    baseline, *others = systems
    found = []
    for name in others:
        differing = sum(map(operator.ne, systems[name], systems[baseline]))
        # A trial of the randomisation test that swaps all n differing lines, or none of them, gives
        # the observed difference: 2 of 2^n trials do.
        minimum: dict[Test, float] = {"bs": 0.0, "ar": 2.0 ** (1 - differing)}
        for metric in [metric for system, metric in scores if system == name]:
            difference = scores[name, metric] - scores[baseline, metric]
            corrected = {
                test: 1.0 if difference == 0 else max(p_values[test, name, metric], minimum[test])
                for test, samples in tests
                if samples
            }
            comparison = Comparison(
                system=name,
                metric=metric,
                difference=difference,
                p_bootstrap=corrected.get("bs"),
                p_randomization=corrected.get("ar"),
            )
            found.append(comparison)
    return found


def to_text(comparisons: Sequence[Comparison], baseline: str) -> str:
    """The differences and p-values for an 80-column terminal."""
    lines = [f"Against the baseline, {baseline}:"]
    width = max(len(item.metric) for item in comparisons)
    system = None
    for item in comparisons:
        if item.system != system:
            system = item.system
            lines.append(f"  {system}")
        tests = ((item.p_bootstrap, "bootstrap"), (item.p_randomization, "randomisation"))
        p_values = [f"p = {p:.4f} ({test})" for p, test in tests if p is not None]
        mark = " *" if item.is_significant else ""
        lines.append(
            f"    {item.metric:<{width}} {item.difference:+7.2f}  {', '.join(p_values)}{mark}"
        )
    lines.append(f"  p: how likely by chance, were both equally good; * all below {SIGNIFICANT}")
    return "\n".join(lines)
