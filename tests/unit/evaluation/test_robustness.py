"""Noisy sources of lines with tags, and their scores, tag by tag."""

from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.data.text.noise import NOISES
from transformer_mt.evaluation.robustness import CLEAN, noisy_sources, score_noisy, to_text
from transformer_mt.evaluation.scores import Score


def test_tags_and_unknown_tags() -> None:
    source = ["<2de> a man .", "<2de>a man .", "<2fr> a man .", "", "<2de>"]
    sources = noisy_sources(source, {"<2de>", ">>fra<<"})
    assert [*sources] == [CLEAN, *NOISES]
    assert sources[CLEAN][1] == "<2de> a man ."
    assert sources["upper_case"][:3] == ["<2de> A MAN .", "<2de> A MAN .", "<2FR> A MAN ."]
    for lines in sources.values():
        assert len(lines) == len(source)
        assert all(line.startswith("<2de> ") for line in (lines[0], lines[1], lines[4]))
        assert lines[3] == ""


def test_each_tag_has_a_table() -> None:
    sources = noisy_sources(["<2de> A b.", "<2fr> A b."], {"<2de>", "<2fr>"})

    def count_capitals(lines: Sequence[str]) -> list[Score]:
        score = Score(name="BLEU", score=0.0, signature="nrefs:1|tok:13a", segments=1)
        counts = (float(sum(map(str.isupper, line))) for line in lines)
        return [
            replace(score, tag=line[:5], score=count)
            for line, count in zip(lines, counts, strict=True)
        ]

    results = score_noisy(sources, count_capitals)
    assert [result.changed for result in results[:3]] == [0, 2, 2]
    assert [item.difference for item in results[1].scores] == [1.0, 1.0]
    text = to_text(results)
    for tag in ("<2de>", "<2fr>"):
        assert text.count(f"Source {tag}") == 1
    assert text.count("2.00 (+1.00)") == 4
    assert text.count("1 segment\n") == 2
