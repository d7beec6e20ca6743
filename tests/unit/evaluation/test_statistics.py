"""Statistics of segments give sacreBLEU's scores of any subset, by any number of processes."""

import sys

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_mt.errors import InputError
from transformer_mt.evaluation.statistics import Statistics, collect


def statistics(
    name: str, hypotheses: list[str], references: list[list[str]], tgt_lang: str | None = None
) -> Statistics:
    return collect({"": hypotheses}, references, [name], tgt_lang=tgt_lang)[""][name]


def test_scores_of_a_subset_are_those_of_the_subset_alone() -> None:
    references = [["a b c d e", "f g h i", "k l m n o"], ["a b c d", "f g h j", "k l m n p"]]
    hypotheses = ["a b c d e", "f g h", "k l m o n"]
    found = statistics("bleu", hypotheses, references)
    for subset in ([0], [1], [2], [0, 2]):
        alone = [[lines[i] for i in subset] for lines in references]
        expected = BLEU().corpus_score([hypotheses[i] for i in subset], alone)
        assert found.score(subset) == expected.score
    assert found.corpus_score().score == BLEU().corpus_score(hypotheses, references).score


def test_scores_of_lines_are_sacrebleu_s() -> None:
    hypotheses, references = ["a b", "", "Köln"], [["a c", "b", "Köln"], ["a b", "c", "Bonn"]]
    found = statistics("chrf", hypotheses, references)
    lines = zip(hypotheses, *references, strict=True)
    expected = [CHRF().sentence_score(line[0], line[1:]).score for line in lines]
    assert [found.score([i]) for i in range(3)] == expected
    assert found.score([2]) == pytest.approx(100)
    chinese = statistics("bleu", ["我喜欢学习中文"], [["我喜欢学习中文。"]], "zh")
    expected_chinese = BLEU(trg_lang="zh").corpus_score(["我喜欢学习中文"], [["我喜欢学习中文。"]])
    assert chinese.score([0]) == expected_chinese.score


@pytest.mark.parametrize("workers", [0, 2])
def test_many_segments_keep_their_order_and_their_references(workers: int) -> None:
    """Every segment is translated perfectly, but for one word in each third line."""
    reference = [f"satz {i} hat die nummer {i * i}" for i in range(90)]
    systems = {
        "a": [line + " x" * (i % 3 == 0) for i, line in enumerate(reference)],
        "b": [line + " x" * (i % 3 == 1) for i, line in enumerate(reference)],
    }
    found = collect(systems, [reference, ["y"] * 90], ["bleu", "ter"], workers=workers)
    assert list(found) == ["a", "b"]
    for rest, (name, lines) in enumerate(systems.items()):
        assert list(found[name]) == ["bleu", "ter"]
        expected = [float(i % 3 == rest) for i in range(90)]
        edits = [row[0] for row in found[name]["ter"].rows]
        assert edits == expected
        by_ter = TER().corpus_score(lines, [reference, ["y"] * 90])
        assert found[name]["ter"].corpus_score().score == by_ter.score
        assert "nrefs:2|" in found[name]["ter"].metric.get_signature().format()


def test_a_metric_that_is_not_installed_is_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(InputError, match="BLEU for ja"):
        collect({"": ["猫"]}, [["猫"]], ["chrf", "bleu"], tgt_lang="ja")
