"""Significance is sacreBLEU's own, to the digit."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt.data.text.sources.sample import sample_pairs
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import Comparison, compare, to_text

SAMPLES = {"bs": 200, "ar": 300}


def edited(lines: list[str], seed: int, share: float) -> list[str]:
    """Some words dropped, some neighbours swapped."""
    draw = random.Random(seed)
    result = []
    for line in lines:
        words = [word for word in line.split(" ") if draw.random() > share]
        if len(words) > 2 and draw.random() < 3 * share:
            i = draw.randrange(len(words) - 1)
            words[i], words[i + 1] = words[i + 1], words[i]
        result.append(" ".join(words))
    return result


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    reference = [german for _, german in sample_pairs("test")[:150]]
    base = edited(reference, 1, 0.1)
    return {
        "ref1": reference,
        "ref2": edited(reference, 2, 0.05),
        "a.de": base,
        "b.de": edited(reference, 3, 0.1),
        "c.de": edited(base, 4, 0.1),
    }


def sacrebleu_cli(
    folder: Path, references: list[str], test: str
) -> dict[tuple[str, str], tuple[float, str | None]]:
    """Score and p-value of every system and metric, as the command prints them.

    As a LaTeX table: its JSON ends in an error (sacreBLEU 2.6), its text breaks the lines.
    """
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", "a.de", "b.de", "c.de"]
    command += ["-m", "bleu", "chrf", "ter", "--format", "latex", "-w", "6", "--quiet"]
    command += [f"--paired-{test}", f"--paired-{test}-n", str(SAMPLES[test])]
    ours = ("SACREBLEU_FORMAT", "SACREBLEU_SEED")
    environment = {k: v for k, v in os.environ.items() if k not in ours} | {"NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, env=environment)
    found = {}
    for line in done.stdout.decode().splitlines():
        system, *cells = line.replace("Baseline:", "").split("&")
        if len(cells) == 3 and ".de" in system:
            for metric, cell in zip(("BLEU", "chrF2", "TER"), cells, strict=True):
                p = re.search(r"p = ([\d.]+)", cell)
                found[system.strip(), metric] = (float(cell.split()[0]), p[1] if p else None)
    return found


@pytest.mark.parametrize("references", [["ref1"], ["ref1", "ref2"]])
def test_equals_the_command(
    texts: dict[str, list[str]],
    references: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = compare(
        {name: texts[name] for name in ("a.de", "b.de", "c.de")},
        [texts[name] for name in references],
        bootstrap=SAMPLES["bs"],
        randomization=SAMPLES["ar"],
    )
    ours = {(item.system, item.metric): item for item in found}
    assert list(ours) == [(s, m) for s in ("b.de", "c.de") for m in ("BLEU", "chrF2", "TER")]
    theirs = {test: sacrebleu_cli(tmp_path, references, test) for test in SAMPLES}
    for (system, metric), item in ours.items():
        for test, p in (("bs", item.p_bootstrap), ("ar", item.p_randomization)):
            base, _ = theirs[test]["a.de", metric]
            score, expected = theirs[test][system, metric]
            assert f"{p:.4f}" == expected, (system, metric, test)
            assert item.difference == pytest.approx(score - base, abs=2e-6)
    # What was spoilt as much differs by luck alone, what was spoilt twice does not.
    assert not ours["b.de", "BLEU"].is_significant
    assert ours["c.de", "BLEU"].is_significant


def test_equal_systems_do_not_differ(texts: dict[str, list[str]]) -> None:
    """By BLEU and TER the third is as good: of two words that are wrong, one is another."""
    wrong = [f"{line} xylophon" for line in texts["a.de"]]
    systems = {"a": wrong, "same": list(wrong)}
    systems["other"] = [line.replace("xylophon", "zebulons") for line in wrong]
    found = compare(systems, [texts["ref1"]], bootstrap=200, randomization=300)
    for item in found:
        if item.system == "same" or item.metric != "chrF2":
            assert (item.difference, item.p_bootstrap, item.p_randomization) == (0, 1, 1)
            assert not item.is_significant
    text = to_text([item for item in found if item.system == "same"], "a")
    assert text.count("+0.00  p = 1.0000 (bootstrap), p = 1.0000 (randomisation)\n") == 3


@pytest.mark.parametrize(("differing", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625)])
def test_few_different_lines_are_not_significant(
    texts: dict[str, list[str]], differing: int, least: float
) -> None:
    """All are for the worse: only swapping all of them, or none, gives so large a difference."""
    spoilt = [*(f"x{line}x" for line in texts["a.de"][:differing]), *texts["a.de"][differing:]]
    systems = {"a.de": texts["a.de"], "spoilt": spoilt}
    found = compare(systems, [texts["ref1"]], bootstrap=0, randomization=300)
    assert [item.p_randomization for item in found] == [pytest.approx(least, abs=0.08)] * 3
    assert all(item.p_randomization >= least for item in found)
    assert not any(item.is_significant for item in found)


def test_seed_is_read_from_the_environment(
    texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def p_values(seed: str) -> list[float | None]:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        systems = {name: texts[name] for name in ("a.de", "b.de")}
        found = compare(systems, [texts["ref1"]], bootstrap=200, randomization=0)
        assert all(item.p_randomization is None for item in found)
        return [item.p_bootstrap for item in found]

    assert p_values("1") == p_values("1") != p_values("2")


def test_no_tests_give_no_comparisons() -> None:
    assert compare({"a": ["x"], "b": ["y"]}, [["x"]], bootstrap=0, randomization=0) == []
    assert compare({"a": ["x"]}, [["x"]], bootstrap=10, randomization=0) == []


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"^1 lines in the hypotheses but 2 in reference set 1"):
        compare({"a": ["x", "y"], "b": ["x"]}, [["x", "y"]])


@pytest.mark.parametrize(
    ("p_bootstrap", "p_randomization", "expected"),
    [(0.01, 0.02, True), (0.01, 0.06, False), (0.06, None, False), (None, 0.01, True)],
)
def test_significant_means_significant_by_every_test(
    p_bootstrap: float | None, p_randomization: float | None, expected: bool
) -> None:
    item = Comparison(
        system="b",
        metric="BLEU",
        difference=1.0,
        p_bootstrap=p_bootstrap,
        p_randomization=p_randomization,
    )
    assert item.is_significant == expected
    assert (" *" in to_text([item], "a").splitlines()[2]) == expected


def test_text_names_the_baseline_and_fits_a_terminal() -> None:
    items = [
        Comparison(
            system=system,
            metric=metric,
            difference=-12.345,
            p_bootstrap=0.001,
            p_randomization=0.0001,
        )
        for system in ("b.de", "c.de")
        for metric in ("BLEU", "chrF2++")
    ]
    lines = to_text(items, "a.de").splitlines()
    assert lines[0] == "Against the baseline, a.de:"
    assert lines[1] == "  b.de"
    assert re.fullmatch(
        r" +BLEU +-12\.35  p = 0\.0010 \(bootstrap\), p = 0\.0001 \(randomisation\) \*", lines[2]
    )
    assert max(map(len, lines)) <= 80
