"""Whether two systems differ by more than luck: sacreBLEU's paired tests against a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sacrebleu.significance import PairedTest

from transformer_mt.evaluate.metrics import DEFAULT, make_metric
from transformer_mt.evaluate.scores import check

SIGNIFICANT = 0.05
"""A p-value below it is marked."""

Test = Literal["bs", "ar"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against the baseline, by one metric."""

    system: str
    metric: str
    """The name of the score: ``BLEU``, ``chrF2``, ``TER``."""
    difference: float
    """The system's score less the baseline's."""
    p_bootstrap: float | None
    """Of paired bootstrap resampling: how likely so large a difference would be by chance, were
    the two systems equally good. None if that test was not asked for."""
    p_randomization: float | None
    """The same by paired approximate randomisation."""

    @property
    def is_significant(self) -> bool:
        """Whether every test that was made calls the difference significant."""
        made = [p for p in (self.p_bootstrap, self.p_randomization) if p is not None]
        return bool(made) and all(p < SIGNIFICANT for p in made)


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    tgt_lang: str | None = None,
    metrics: Sequence[str] = DEFAULT,
    bootstrap: int = 1000,
    randomization: int = 10_000,
) -> list[Comparison]:
    """Every system but the first against the first, by sacreBLEU's ``--paired-bs`` and ``-ar``.

    In one thing sacreBLEU is overruled. It counts the resamples whose difference is greater than
    the one found, where a p-value counts those at least as great: so of two equal systems, where
    all differences are 0, it says p = 0.0001. Where many lines differ there are hardly any ties,
    and p is sacreBLEU's to the digit.

    Args:
        systems: Hypotheses by the system's name, the baseline first.
        references: One list per reference set.
        tgt_lang: Language code, for BLEU's tokeniser.
        metrics: Names that ``make_metric`` knows.
        bootstrap: Resamples of the first test; 0 leaves it out.
        randomization: Trials of the second test; 0 leaves it out.

    Raises:
        InputError: If there is nothing to score, or the lists differ in length.
    """
    for hypotheses in systems.values():
        check(hypotheses, references)
    if len(systems) < 2 or not metrics:
        return []

    def p_values(test: Test, samples: int) -> dict[tuple[str, str], tuple[float, float | None]]:
        """(score, p) by (system, metric)."""
        paired = PairedTest(
            list(systems.items()),
            {name: make_metric(name, tgt_lang) for name in metrics},
            references,
            test_type=test,
            n_samples=samples,
        )
        _, results = paired()
        names = results.pop("System")
        found = {}
        for metric, of_systems in results.items():
            for name, result in zip(names, of_systems, strict=True):
                assert isinstance(name, str)
                assert not isinstance(result, str)
                found[name, metric] = (result.score, result.p_value)
        return found

    tests: list[tuple[Test, int]] = [("bs", bootstrap), ("ar", randomization)]
    made = {test: p_values(test, samples) for test, samples in tests if samples}
    if not made:
        return []
    baseline, *others = systems
    results = next(iter(made.values()))

    def against(name: str, metric: str) -> Comparison:
        difference = results[name, metric][0] - results[baseline, metric][0]
        pairs = zip(systems[name], systems[baseline], strict=True)
        differing = sum(ours != theirs for ours, theirs in pairs)
        # A difference of 0 is no greater than any. And a trial that swaps all of the lines that
        # differ, or none, has the difference found: of n such lines two in 2^n do.
        least = {"bs": 0.0, "ar": 2.0 ** (1 - differing)}

        def p(test: Test) -> float | None:
            if test not in made:
                return None
            found = made[test][name, metric][1]
            assert found is not None
            return 1.0 if difference == 0 else max(found, least[test])

        return Comparison(
            system=name,
            metric=metric,
            difference=difference,
            p_bootstrap=p("bs"),
            p_randomization=p("ar"),
        )

    return [
        against(name, metric) for name in others for system, metric in results if system == name
    ]


def to_text(comparisons: Sequence[Comparison], baseline: str) -> str:
    """The differences for a person at an 80-column terminal."""
    lines = [f"Against the baseline, {baseline}:"]
    width = max(len(item.metric) for item in comparisons)
    system = None
    for item in comparisons:
        if item.system != system:
            system = item.system
            lines.append(f"  {system}")
        tests = ((item.p_bootstrap, "bootstrap"), (item.p_randomization, "randomisation"))
        chances = [f"p = {p:.4f} ({test})" for p, test in tests if p is not None]
        mark = " *" if item.is_significant else ""
        lines.append(
            f"    {item.metric:<{width}} {item.difference:+7.2f}  {', '.join(chances)}{mark}"
        )
    lines.append(f"  p: how likely by chance, were both equally good; * all below {SIGNIFICANT}")
    return "\n".join(lines)
