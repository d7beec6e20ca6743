"""Intervals and significance are sacreBLEU's."""

import json
from collections import Counter
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest
from support.sample import sample_pairs
from support.scoring import perturbed

from transformer_mt.evaluation.comparison import (
    Evaluation,
    ScoreSettings,
    TestSet,
    evaluate_systems,
)
from transformer_mt.evaluation.score_tables import to_json, to_text
from transformer_mt.evaluation.scores import Score

RESAMPLES = 200


def evaluated(
    systems: dict[str, list[str]], references: list[list[str]], **settings: Any
) -> Evaluation:
    test = TestSet(references={f"ref{i}": lines for i, lines in enumerate(references)})
    return evaluate_systems(systems, test, ScoreSettings(**settings))


def comparisons(evaluation: Evaluation) -> dict[tuple[str, str], Score]:
    """The compared scores by system and name."""
    return {
        (system.name, score.name): score
        for system in evaluation.systems
        for score in system.scores
        if score.difference is not None
    }


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    reference = [german for _, german in sample_pairs("test")[:150]]
    base = perturbed(reference, 1)
    return {
        "ref1": reference,
        "ref2": perturbed(reference, 2, 0.05),
        "ref3": perturbed(reference, 5, 0.2),
        "a.de": base,
        "b.de": perturbed(reference, 8),
        "c.de": perturbed(base, 4),
    }


@pytest.mark.parametrize("references", [["ref1"], ["ref1", "ref2", "ref3"]])
def test_equals_the_paired_test_of_sacrebleu(
    texts: dict[str, list[str]], references: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    systems = {name: texts[name] for name in ("a.de", "b.de", "c.de")}
    lines = [texts[name] for name in references]
    evaluation = evaluated(systems, lines, bootstrap=RESAMPLES)
    assert [system.name for system in evaluation.systems] == [*systems]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    signatures, results = PairedTest([*systems.items()], metrics, lines, "bs", RESAMPLES)()
    for i, system in enumerate(evaluation.systems):
        assert [row.name for row in system.scores] == [*metrics]
        for row in system.scores:
            theirs, baseline = results[row.name][i], results[row.name][0]
            expected = (theirs.score, theirs.mean, theirs.ci, theirs.p_value)
            assert (row.score, row.mean, row.confidence, row.p_bootstrap) == expected
            assert row.difference == (theirs.score - baseline.score if i else None)
            assert row.signature == str(signatures[row.name])
            assert row.segments == 150
    # What was spoilt as much differs by luck alone, what was spoilt twice does not.
    ours = comparisons(evaluation)
    assert not ours["b.de", "BLEU"].is_significant
    assert ours["c.de", "BLEU"].is_significant


def test_lines_of_each_tag_are_scored_apart(texts: dict[str, list[str]]) -> None:
    """Against their own references, and counted by themselves."""
    tags = ["<2de>", "<2fr>", "<2de>"] * 50
    source = [f"{tag} {i}" for i, tag in enumerate(tags)]
    hypotheses = [line if i % 10 else "" for i, line in enumerate(texts["a.de"])]
    test = TestSet(references={"r": texts["ref1"]}, source=source, tags={"<2de>", "<2fr>"})
    (system,) = evaluate_systems({"a": hypotheses}, test, ScoreSettings(metrics=["bleu"])).systems
    for score, tag, lines in zip(system.scores, ("<2de>", "<2fr>"), (100, 50), strict=True):
        own = [i for i in range(150) if tags[i] == tag]
        expected = BLEU().corpus_score(
            [hypotheses[i] for i in own], [[texts["ref1"][i] for i in own]]
        )
        assert (score.tag, score.score, score.segments) == (tag, expected.score, lines)
    assert system.diagnostics == [
        "<2de>: 10 of 100 lines are empty",
        "<2fr>: 5 of 50 lines are empty",
    ]


def test_lengths_are_words_or_characters_without_tags() -> None:
    texts = [" ".join(["w"] * n) for n in (40, 0, 3, 4, 9, 10, 39, 41, 20)]
    test = TestSet(references={}, source=[f"<2de> {line}" for line in texts], tags={"<2de>"})
    expected = {"1–3": [1, 2], "4–9": [3, 4], "10–19": [5], "20–39": [6, 8], "40+": [0, 7]}
    assert test.by_length() == ("words", expected)
    test = TestSet(references={"ref": ["今天天气很好，我们去公园散步。" * 3, "我喜欢。"]})
    assert test.by_length() == ("characters", {"4–9": [1], "40+": [0]})


def test_lines_of_each_length_are_scored_apart(texts: dict[str, list[str]]) -> None:
    sizes = [2, 5, 2] * 50
    source = [f"{'<2de> ' if i % 2 else ''}{'w ' * size}" for i, size in enumerate(sizes)]
    test = TestSet(references={"r": texts["ref1"]}, source=source, tags={"<2de>"})
    settings = ScoreSettings(metrics=["bleu", "chrf"], by_length=True, bootstrap=50)
    systems = {name: texts[name] for name in ("a.de", "b.de")}
    evaluation = evaluate_systems(systems, test, settings)
    for system in evaluation.systems:
        assert len(system.scores) == 2 * 2
        found = {(x.tag, x.length, x.name): (x.score, x.segments, x.mean) for x in system.by_length}
        for tag in ("", "<2de>"):
            for size, length in ((2, "1–3 words"), (5, "4–9 words")):
                own = [i for i in range(150) if sizes[i] == size and bool(i % 2) == bool(tag)]
                hypotheses, reference = (
                    [lines[i] for i in own] for lines in (system.hypotheses, texts["ref1"])
                )
                for metric in (BLEU(), CHRF()):
                    score = metric.corpus_score(hypotheses, [reference])
                    assert found.pop((tag, length, score.name)) == (score.score, len(own), None)
        assert found == {}
    (chosen, _) = (system["scores"] for system in json.loads(to_json(evaluation)))
    lengths = Counter(row.get("length") for row in chosen)
    assert lengths == {None: 4, "1–3 words": 4, "4–9 words": 4}
    text = to_text(evaluation)
    for score in evaluation.systems[1].by_length:
        assert f"│ {score.score:.2f} " in text
        assert f"│ {score.length} " in text
    lines = [line for line in text.splitlines() if not line.startswith("  nrefs:")]
    assert max(map(len, lines)) <= 80


def test_equal_systems_do_not_differ(texts: dict[str, list[str]]) -> None:
    """By BLEU and TER the third is as good: of two words that are wrong, one is another."""
    wrong = [f"{line} xylophon" for line in texts["a.de"]]
    systems = {"a": wrong, "same": list(wrong)}
    systems["other"] = [line.replace("xylophon", "zebulons") for line in wrong]
    evaluation = evaluated(systems, [texts["ref1"]], bootstrap=200)
    for (system, metric), item in comparisons(evaluation).items():
        if system == "same" or metric != "chrF2":
            assert (item.difference, item.p_bootstrap) == (0, 1)
            assert not item.is_significant
