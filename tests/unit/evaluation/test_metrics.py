"""Scores equal sacreBLEU's to the digit; the paper's protocol equals its authors' script."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from support.paths import MULTI30K
from support.scoring import perturbed, python, score

from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet, evaluate_systems
from transformer_mt.evaluation.metrics import split_compounds
from transformer_mt.evaluation.scores import Score, to_json

# Quotes, hyphens, decimals, a blank hypothesis, a line separator inside a line, NBSP, entities.
REFERENCE = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Er sagte: „Das Open-Source-Projekt kostet 3,5 Mio. Euro – oder mehr.“",
    "Die E-Mail-Adresse lautet test@example.org, nicht wahr?",
    "Am 1. Mai 2014 war's in Köln-Deutz kühl.",
    "AT&amp;T & Söhne <b>",
    "Ein Satz\u2028mit\u00a0seltsamen Leerzeichen.",
]
HYPOTHESIS = [
    "Zwei junge Männer sind draußen in der Nähe vieler Büsche.",
    'Er sagte: "Das Open Source Projekt kostet 3,5 Mio. Euro oder mehr."',
    "Die E-Mail-Adresse ist test@example.org, nicht wahr?",
    "",
    "AT&amp;T und Söhne <b>",
    "Ein Satz mit seltsamen Leerzeichen .",
]


def with_intervals(
    hypotheses: list[str], references: list[list[str]], **settings: Any
) -> list[Score]:
    test = TestSet(references={str(i): lines for i, lines in enumerate(references)})
    return evaluate_systems({"": hypotheses}, test, ScoreSettings(**settings)).systems[0].scores


def protocol_score(
    name: str, hypotheses: list[str], reference: list[str], tgt_lang: str = "de"
) -> Score:
    (found,) = score(hypotheses, [reference], tgt_lang=tgt_lang, metrics=[name])
    return found


def test_scores_and_intervals_equal_the_command_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references = [REFERENCE, perturbed(REFERENCE, seed=3)]
    ours = json.loads(to_json(with_intervals(HYPOTHESIS, references, bootstrap=200)))
    assert {row.pop("segments") for row in ours} == {len(HYPOTHESIS)}
    for name, lines in zip(("hyp", "ref0", "ref1"), (HYPOTHESIS, *references), strict=True):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    command = "-m sacrebleu ref0 ref1 -i hyp -m bleu chrf ter --confidence -cin 200"
    theirs = json.loads(python(tmp_path, *command.split(), "--format", "json", "-w", "4"))
    assert all(row["bs"] == "200" for row in ours)
    assert all(row["confidence_var"] > 0.1 for row in ours)
    for row, expected in zip(ours, theirs, strict=True):
        for key in ("confidence_mean", "confidence_var"):  # of float32 and of float64
            assert row.pop(key) == pytest.approx(expected.pop(key), abs=2e-4)
        assert row.pop("confidence")[:8] == expected.pop("confidence")[:8]  # μ = 12.3
    assert ours == theirs


def test_resamples_without_any_match_have_an_interval_too() -> None:
    """The option ``--confidence`` of sacreBLEU 2.6 itself ends in a TypeError here."""
    rows = with_intervals(["a b c d e", "x", "y"], [["a b c d e", "z", "z"]], bootstrap=50)
    assert [row.name for row in rows] == ["BLEU", "chrF2", "TER"]
    assert all(row.confidence is not None and row.confidence > 1 for row in rows)


def test_metrics_default_to_those_that_suit_the_language() -> None:
    assert metrics.default("de") == ["bleu", "chrf", "ter", "paper"]
    assert metrics.default("th") == metrics.default(None) == ["bleu", "chrf", "ter"]


def test_words_of_chrf() -> None:
    (found,) = score(HYPOTHESIS, [REFERENCE], metrics=["chrf++"])
    assert found.score == CHRF(word_order=2).corpus_score(HYPOTHESIS, [REFERENCE]).score


CHINESE = ["我喜欢这只红色的狗。", "他来了"], ["我喜欢那只红色的狗。", "他走了"]


@pytest.mark.parametrize("code", ["zh-CN", "cmn_Hant", "zho_Hans"])
def test_characters_of_chinese(code: str) -> None:
    hypotheses, reference = CHINESE
    found = score(hypotheses, [reference], tgt_lang=code)
    as_chinese = [BLEU(tokenize="zh"), CHRF(), TER(normalized=True, asian_support=True)]
    for ours, metric in zip(found, as_chinese, strict=True):
        theirs = metric.corpus_score(hypotheses, [reference])
        assert (ours.name, ours.score, ours.segments) == (theirs.name, theirs.score, 2)
        assert ours.signature == metric.get_signature().format()
    assert found[2].score == pytest.approx(100 * 2 / 13)  # two of 10 + 3 characters


def test_paper_bleu_is_the_authors_perl_pipeline_on_real_text() -> None:
    path = MULTI30K / "test_2016_flickr.de.gz"
    if not path.exists():
        pytest.skip(f"no real text at {path}")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.rstrip("\n") for line in file]
    # Computed once with Moses' tokenizer.perl 1.1, the script's own perl -ple and multi-bleu.perl.
    found = protocol_score("paper", perturbed(lines, seed=1), lines)
    assert found.score == pytest.approx(66.8399, abs=5e-5)
    assert found.verbose.endswith("hyp_len = 10958 ref_len = 12240)")


def test_paper_bleu_on_text_tokenised_by_hand() -> None:
    hypothesis = ["Das Open-Source-Projekt sei „gut“.", "er mag z.B. Rich-Text, sagt’s aber nicht."]
    reference = [
        'Das Open-Source-Projekt ist sehr "gut".',
        "Er mag z.B. Rich-Text, sagt es aber nicht!",
    ]
    open_source = "Open ##AT##-##AT## Source ##AT##-##AT## Projekt"
    by_hand_hypothesis = [
        f"Das {open_source} sei &quot; gut &quot; .",
        "er mag z.B. Rich ##AT##-##AT## Text , sagt &apos; s aber nicht .",
    ]
    by_hand_reference = [
        f"Das {open_source} ist sehr &quot; gut &quot; .",
        "Er mag z.B. Rich ##AT##-##AT## Text , sagt es aber nicht !",
    ]
    expected = BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(
        by_hand_hypothesis, [by_hand_reference]
    )
    found = protocol_score("paper", hypothesis, reference)
    assert found.name == "BLEU (paper protocol)"
    assert 0 < found.score == expected.score
    assert f"hyp_len = {sum(len(line.split()) for line in by_hand_hypothesis)} " in found.verbose
    assert "|case:mixed|eff:no|tok:sacremoses-de-atat|smooth:none|" in found.signature
    # As by the authors' script, which misses overlapping matches.
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"
    assert split_compounds("ein - Strich -los") == "ein - Strich -los"


@pytest.mark.parametrize(("code", "language"), [("DE", "de"), ("de_AT", "de"), ("fr-CA", "fr")])
def test_protocols_do_not_depend_on_the_form_of_the_language_code(code: str, language: str) -> None:
    """sacremoses splits "ca." by the language's abbreviations, and "qu'on" by its apostrophes."""
    reference = ["Er ist ca. 3 km von hier.", "L'homme qu'on a vu."]
    hypothesis = ["Er ist ca . 3 km von hier.", "L' homme qu' on a vu."]
    found = protocol_score("paper", hypothesis, reference, code)
    assert found == protocol_score("paper", hypothesis, reference, language)
    assert found.score != protocol_score("paper", hypothesis, reference, "en").score
    assert f"|tok:sacremoses-{language}-" in found.signature
