"""Noisy sources of lines with tags, and the table of their scores, tag by tag."""

from dataclasses import replace

from transformer_mt.data.text.noise import NOISES
from transformer_mt.evaluation.robustness import CLEAN, NoiseScores, noisy_sources, to_text
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
    score = Score(name="BLEU", score=2.0, signature="nrefs:1|tok:13a", segments=1, difference=1.0)
    results = []
    for tag in ("<2de>", "<2fr>"):
        noisy = replace(score, tag=tag)
        results.append(NoiseScores(CLEAN, 0, [replace(noisy, score=1.0, difference=None)]))
        results += [NoiseScores(noise, 2, [noisy]) for noise in ("lower_case", "upper_case")]
    text = to_text(results)
    for tag in ("<2de>", "<2fr>"):
        assert text.count(f"Source {tag}") == 1
    assert text.count("2.00 (+1.00)") == 4
    assert text.count("1 segment\n") == 2
